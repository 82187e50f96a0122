//! Serves traces to a browser on the same machine: timelines of a trace of any size.
//!
//! The server reads; it changes nothing. It listens on the loopback interface or a socket in the file system, and answers only its pages, in a browser that was given its token ([`Server::address`]).
//!
//! ```no_run
//! use annals_server::{Listen, Preparation, Server};
//!
//! # fn main() -> std::io::Result<()> {
//! let server = Server::bind(
//!     &["run.annals".into()],
//!     &Listen::Address(([127, 0, 0, 1], 0).into()),
//!     Preparation::default(),
//! )?;
//! println!("{}", server.address());
//! server.run()
//! # }
//! ```
//!
//! The interface is HTTP with JSON, and [tiles](tile) for pictures: the manual describes it, in the chapter “In the browser”.

mod answers;
mod connection;
mod event_bins;
mod guard;
mod page;
pub mod parameters;
mod routes;
mod subject;
pub mod tile;
mod token;
mod trace;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

pub use crate::subject::Preparation;
pub use annals_analysis::{BinRange, LaneBin};

use crate::connection::{MOST_CONNECTIONS, Shared, serve};
use crate::guard::Guard;
use crate::subject::Subject;
use crate::token::Token;

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// An address of the loopback interface; port 0 takes a free one.
    Address(SocketAddr),
    /// A socket in the file system, which only its owner can use.
    Socket(PathBuf),
}

#[derive(Debug)]
enum Listener {
    Port(std::net::TcpListener),
    Socket(std::os::unix::net::UnixListener, PathBuf),
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    token: Token,
    address: SocketAddr,
    subjects: Vec<Arc<Subject>>,
    preparation: Preparation,
}

impl Server {
    /// Begins to listen. Inputs are prepared when it runs.
    ///
    /// # Errors
    /// If the port or the name of the socket is taken, or the address is not one of the loopback interface.
    pub fn bind(inputs: &[PathBuf], listen: &Listen, preparation: Preparation) -> io::Result<Self> {
        let token = Token::random()?;
        let (listener, address) = match listen {
            Listen::Address(address) if !address.ip().is_loopback() => {
                let what = format!("{address} is beyond this machine: only the loopback interface");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            Listen::Address(address) => {
                let listener = std::net::TcpListener::bind(address)?;
                let address = listener.local_addr()?;
                (Listener::Port(listener), address)
            }
            Listen::Socket(path) => {
                let listener = bind_socket(path)?;
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                (Listener::Socket(listener, path.clone()), address)
            }
        };
        let subjects = inputs.iter().map(|path| Arc::new(Subject::new(path)));
        Ok(Self {
            listener,
            token,
            address,
            subjects: subjects.collect(),
            preparation,
        })
    }

    /// Returns the address of the page, with the token. It belongs into no argument of a program, which others can see.
    pub fn address(&self) -> String {
        let (address, token) = (self.address, self.token.digits());
        match &self.listener {
            Listener::Port(_) => format!("http://{address}/?token={token}"),
            // The port is that of the tunnel that leads to it.
            Listener::Socket(..) => format!("http://localhost:PORT/?token={token}"),
        }
    }

    /// Serves until the process is interrupted or terminated.
    ///
    /// # Errors
    /// If the system has no more sockets or threads for it.
    pub fn run(self) -> io::Result<()> {
        let number = match &self.listener {
            Listener::Port(_) => self.address.port().into(),
            Listener::Socket(..) => std::process::id(),
        };
        for subject in &self.subjects {
            let (subject, preparation) = (Arc::clone(subject), self.preparation.clone());
            std::thread::Builder::new()
                .name("prepare".to_owned())
                .spawn(move || prepare(&subject, &preparation))?;
        }
        let shared = Shared::new(Guard::new(self.token, number), self.subjects.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(listen(self.listener, Arc::new(shared)));
        self.subjects.iter().for_each(|subject| subject.stop());
        runtime.shutdown_timeout(Duration::from_millis(100));
        outcome
    }
}

/// Prepares an input, and once more whenever its file has been replaced.
fn prepare(subject: &Subject, preparation: &Preparation) {
    subject.prepare(preparation);
    while !subject.has_stopped() {
        std::thread::sleep(Duration::from_millis(500));
        if subject.is_replaced() {
            subject.prepare(preparation);
        }
    }
}

/// Binds a socket that only its owner can use. One on which no server listens any more is replaced.
fn bind_socket(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    use std::os::unix::net::{UnixListener, UnixStream};
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    // Others must not connect before the mode is set.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let bound = bound?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(bound)
}

async fn listen(listener: Listener, shared: Arc<Shared>) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut end = signal(SignalKind::terminate())?;
    // The terminal is closed.
    let mut close = signal(SignalKind::hangup())?;
    let accept = async {
        match &listener {
            Listener::Port(listener) => {
                listener.set_nonblocking(true)?;
                let listener = TcpListener::from_std(listener.try_clone()?)?;
                loop {
                    let stream = listener.accept().await.map(|accepted| accepted.0);
                    if let Ok(stream) = &stream {
                        let _ = stream.set_nodelay(true);
                    }
                    take(stream, &room, &shared).await;
                }
            }
            Listener::Socket(listener, _) => {
                listener.set_nonblocking(true)?;
                let listener = UnixListener::from_std(listener.try_clone()?)?;
                loop {
                    let stream = listener.accept().await.map(|accepted| accepted.0);
                    take(stream, &room, &shared).await;
                }
            }
        }
    };
    let outcome = tokio::select! {
        outcome = accept => outcome,
        _ = tokio::signal::ctrl_c() => Ok(()),
        _ = end.recv() => Ok(()),
        _ = close.recv() => Ok(()),
    };
    if let Listener::Socket(_, path) = &listener {
        let _ = std::fs::remove_file(path);
    }
    outcome
}

/// Takes a connection in, if there is room for it.
async fn take<S>(stream: io::Result<S>, room: &Arc<Semaphore>, shared: &Arc<Shared>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let Ok(stream) = stream else {
        // Too many files are open, mostly: that passes.
        tokio::time::sleep(Duration::from_millis(50)).await;
        return;
    };
    let Ok(place) = Arc::clone(room).try_acquire_owned() else {
        return;
    };
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        serve(shared, stream).await;
        drop(place);
    });
}
