//! An HTTP/2 server and its clients in one process, on tokio's threads: tasks move between them, and the
//! library they use, h2, has its own spans and events.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use h2::server::SendResponse;
use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::field::Empty;
use tracing::{Span, info, instrument};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How much there is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Threads that run tasks.
    pub(crate) threads: usize,
    /// Clients, each with a separate connection.
    pub(crate) clients: u64,
    /// Requests of each client.
    pub(crate) requests: u64,
}

/// Runs clients and server until all requests are answered. Returns the number of bytes that were echoed.
///
/// # Errors
/// If the machine has no local network.
pub(crate) fn run(load: Load) -> Result<u64> {
    let number = std::sync::atomic::AtomicUsize::new(0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(load.threads)
        .thread_name_fn(move || {
            let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            format!("worker {number}")
        })
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(serve(listener, load.clients));
        let mut clients = JoinSet::new();
        for number in 0..load.clients {
            clients.spawn(client(address, number, load.requests));
        }
        let mut echoed = 0;
        while let Some(outcome) = clients.join_next().await {
            echoed += outcome??;
        }
        server.await??;
        Ok(echoed)
    })
}

async fn serve(listener: TcpListener, clients: u64) -> Result<()> {
    let mut connections = JoinSet::new();
    for _ in 0..clients {
        let (socket, peer) = listener.accept().await?;
        connections.spawn(connection(socket, peer));
    }
    while let Some(outcome) = connections.join_next().await {
        outcome??;
    }
    Ok(())
}

#[instrument(skip(socket))]
async fn connection(socket: TcpStream, peer: SocketAddr) -> Result<()> {
    let mut connection = h2::server::handshake(socket).await?;
    let mut handlers = JoinSet::new();
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        handlers.spawn(handle(request, respond));
    }
    while let Some(outcome) = handlers.join_next().await {
        outcome??;
    }
    Ok(())
}

#[instrument(skip_all, fields(path = request.uri().path(), bytes = Empty))]
async fn handle(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<()> {
    let mut body = request.into_body();
    let mut bytes = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        bytes.extend_from_slice(&part);
    }
    Span::current().record("bytes", bytes.len());
    let sum = checksum(&bytes).await;
    info!(sum, is_empty = bytes.is_empty(), "answered");
    let mut answer = respond.send_response(Response::new(()), false)?;
    answer.send_data(bytes.into(), true)?;
    Ok(())
}

/// Waits in between, as for a disk; the task then continues in the thread that handles timers.
#[instrument(level = "debug", skip_all)]
async fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = 0_u64;
    for part in bytes.chunks(256) {
        sum = part.iter().fold(sum, |sum, byte| {
            sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte)
        });
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    sum
}

#[instrument]
async fn client(address: SocketAddr, number: u64, requests: u64) -> Result<u64> {
    let socket = TcpStream::connect(address).await?;
    let (mut sender, connection) = h2::client::handshake(socket).await?;
    let driver = tokio::spawn(connection);
    let mut echoed = 0;
    for request in 0..requests {
        sender = sender.ready().await?;
        echoed += ask(&mut sender, number, request).await?;
    }
    drop(sender);
    driver.await??;
    Ok(echoed)
}

#[instrument(skip(sender))]
async fn ask(sender: &mut SendRequest<Bytes>, client: u64, request: u64) -> Result<u64> {
    let question = Request::post(format!("http://localhost/{client}/{request}")).body(())?;
    let (response, mut stream) = sender.send_request(question, false)?;
    stream.send_data(vec![7; 2048].into(), true)?;
    let mut body = response.await?.into_body();
    let mut echoed = 0;
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        echoed += part.len() as u64;
    }
    Ok(echoed)
}
