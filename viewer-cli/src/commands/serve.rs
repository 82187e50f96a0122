//! `trace-cli serve`: a timeline in the browser.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use super::lanes::OverviewArguments;
use crate::output::{self, Finding, UsageError};
use crate::table::safe;

/// A timeline in the browser, of traces of any size.
///
/// Serves a page to browsers of this machine, and prints its address, with a token that keeps others out. Two inputs are shown one
/// above the other, with one time axis. A trace without an overview gets one first, in the user's cache (see --index); recordings and archives are
/// merged into a temporary trace. Ends with Ctrl-C.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  trace-cli serve run.annals --open\n  trace-cli serve before.annals after.annals\n\n\
                  On another machine: run `trace-cli serve run.annals --port 8080` there, `ssh -L 8080:localhost:8080 HOST` here,\n\
                  and open the address that was printed in the browser here."
)]
pub struct ServeArguments {
    /// A trace, a recording, a directory of recordings, an OTF2 archive, a Paraver or PyTorch trace; two of them are compared
    #[arg(value_name = "INPUT", required = true, num_args = 1..=2)]
    inputs: Vec<PathBuf>,

    /// Port to listen on [default: a free one]
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    port: u16,

    /// Address to listen on: one of the loopback interface
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,

    /// Listen on a socket in the file system instead, which only its owner can use
    #[arg(long, value_name = "PATH", conflicts_with_all = ["port", "listen", "open"])]
    socket: Option<PathBuf>,

    /// Open the page in the browser
    #[arg(long)]
    open: bool,

    #[command(flatten)]
    overview: OverviewArguments,

    /// Show the whole run first, with `MPI_Init` and `MPI_Finalize`
    #[arg(long)]
    all: bool,

    /// Look for names of functions in the files of this directory too (of the same build id)
    #[arg(long, value_name = "DIR")]
    symbols: Vec<PathBuf>,

    /// The address as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command, until it is interrupted.
///
/// # Errors
/// If an input does not exist, the address cannot be listened on, or no browser can be started.
pub fn run(arguments: &ServeArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    output::check_built_in(cfg!(feature = "serve"), "serve")?;
    if !arguments.listen.is_loopback() {
        return Err(UsageError(format!(
            "{} is beyond this machine: the page is for this machine only; use ssh -L to look from another",
            arguments.listen
        ))
        .into());
    }
    if arguments.overview.index.is_some() && arguments.inputs.len() > 1 {
        return Err(UsageError("--index keeps the overview of one trace".to_owned()).into());
    }
    for input in &arguments.inputs {
        let shown = safe(&input.display().to_string());
        std::fs::metadata(input).with_context(|| format!("cannot read {shown}"))?;
    }
    #[cfg(feature = "serve")]
    server::serve(arguments, out)?;
    #[cfg(not(feature = "serve"))]
    let _ = out;
    Ok(Finding::FINE)
}

/// What needs the server.
#[cfg(feature = "serve")]
mod server {
    use std::net::SocketAddr;
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::process::{Command, Stdio};

    use annals_server::{Listen, Preparation, Server};
    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    struct AddressOut<'a> {
        address: &'a str,
    }

    pub(super) fn serve(arguments: &ServeArguments, out: &mut dyn Write) -> anyhow::Result<()> {
        let listen = match &arguments.socket {
            Some(path) => Listen::Socket(path.clone()),
            None => Listen::Address(SocketAddr::new(arguments.listen, arguments.port)),
        };
        let preparation = Preparation {
            index: arguments.overview.index.clone(),
            cache: annals_analysis::OverviewCache::of_user(),
            temporary_directory: None,
            symbols: arguments.symbols.clone(),
            shows_all: arguments.all,
        };
        let server = Server::bind(&arguments.inputs, &listen, preparation);
        let server = server.with_context(|| match &arguments.socket {
            Some(path) => format!("cannot listen on {}", safe(&path.display().to_string())),
            None => format!("cannot listen on port {}", arguments.port),
        })?;
        let address = server.address();
        match arguments.json {
            true => output::json(out, &AddressOut { address: &address })?,
            false => writeln!(out, "{address}")?,
        }
        out.flush()?;
        eprintln!("Ctrl-C ends it.");
        let _page = match arguments.open {
            true => Some(open(&address)?),
            false => None,
        };
        server.run().context("the server")?;
        Ok(())
    }

    /// Opens a page that leads to the address: an argument would show the token to everybody. The page ends with the directory.
    fn open(address: &str) -> anyhow::Result<tempfile::TempDir> {
        let directory =
            tempfile::TempDir::with_prefix("annals-serve-").context("a temporary directory")?;
        let path = directory.path().join("open.html");
        let page = format!(
            "<!DOCTYPE html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0; url={address}\"><title>Annals</title>\n"
        );
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(page.as_bytes()))
            .context("a page that leads to the server")?;
        let program = std::env::var_os("BROWSER").unwrap_or_else(|| "xdg-open".into());
        let started = Command::new(&program)
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let program = safe(&program.to_string_lossy());
        started.with_context(|| {
            format!("cannot start {program}: open the address yourself, without --open")
        })?;
        Ok(directory)
    }
}
