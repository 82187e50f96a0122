//! Runs the bench in a child process, in an environment made for it: a scratch folder, a free port
//! for Tracy, a session daemon for LTTng. Whatever becomes of the child, the daemon is stopped and
//! the folder removed.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Passes the path of the scratch folder to the child.
const SCRATCH: &str = "ANNALS_COMPARE_SCRATCH";
/// Passes the reason to the child why there is no session daemon.
const NO_DAEMON: &str = "ANNALS_COMPARE_NO_DAEMON";

/// Returns the scratch folder, when this is the child.
pub(crate) fn scratch() -> Option<PathBuf> {
    std::env::var_os(SCRATCH).map(PathBuf::from)
}

/// Returns why LTTng has no session daemon, if it has none.
#[cfg_attr(not(lttng), expect(dead_code, reason = "LTTng is not built"))]
pub(crate) fn daemon_failure() -> Option<String> {
    std::env::var(NO_DAEMON).ok()
}

/// Runs this very command again as the child; returns its exit code.
///
/// # Errors
/// If the scratch folder or the child cannot be created.
pub(crate) fn supervise() -> std::io::Result<ExitCode> {
    let scratch = tempfile::tempdir()?;
    let mut bench = Command::new(std::env::current_exe()?);
    bench.args(std::env::args_os().skip(1));
    bench.env(SCRATCH, scratch.path());
    bench.env("LTTNG_HOME", scratch.path());
    // Free now; Tracy's client takes it immediately.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    bench.env("TRACY_PORT", port.to_string());
    let daemon = if cfg!(lttng) {
        SessionDaemon::start(scratch.path())
    } else {
        Err("LTTng is not built".to_owned())
    };
    if let Err(reason) = &daemon {
        bench.env(NO_DAEMON, reason);
    }
    let status = bench.status()?;
    Ok(status
        .code()
        .map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)))
}

/// A session daemon that is stopped with this value.
struct SessionDaemon(Child);

impl SessionDaemon {
    fn start(home: &Path) -> Result<Self, String> {
        let child = Command::new("lttng-sessiond")
            .arg("--no-kernel")
            .env("LTTNG_HOME", home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.map_err(|error| format!("`lttng-sessiond` cannot be run: {error}"))?;
        let mut daemon = Self(child);
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let list = Command::new("lttng")
                .args(["--no-sessiond", "list"])
                .env("LTTNG_HOME", home)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            match (daemon.0.try_wait(), list) {
                (Ok(Some(status)), _) => {
                    return Err(format!(
                        "`lttng-sessiond` ended: {status}; is another running?"
                    ));
                }
                (_, Ok(status)) if status.success() => return Ok(daemon),
                _ if Instant::now() > deadline => {
                    return Err("`lttng-sessiond` does not answer".to_owned());
                }
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

impl Drop for SessionDaemon {
    fn drop(&mut self) {
        // SIGTERM lets it stop its consumers; the kill is for a daemon that does not.
        let stop = Command::new("kill").arg(self.0.id().to_string()).status();
        let deadline = Instant::now() + Duration::from_secs(5);
        while stop.is_ok() && Instant::now() < deadline {
            if let Ok(Some(_)) = self.0.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
