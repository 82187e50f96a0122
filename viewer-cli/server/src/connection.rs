//! Connections: HTTP/1, with limits for what clients may cost.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use annals_merger::StopFlag;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

use crate::guard::Guard;
use crate::parameters::{self, Request as Asked};
use crate::routes::{Answer, Freshness, answer};
use crate::subject::Subject;

/// Most connections that are open.
pub(crate) const MOST_CONNECTIONS: usize = 256;
/// Most requests at work.
const MOST_REQUESTS: usize = 100;
/// How long a client may take for the head of a request, and for taking a part of an answer.
const SLOW: Duration = Duration::from_secs(10);
/// Most bytes of the head of a request, and most header fields.
const HEAD_BYTES: usize = 16 << 10;
const HEAD_FIELDS: usize = 64;

/// The page loads its own parts, and nothing else; no other page shows it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    guard: Guard,
    subjects: Vec<Arc<Subject>>,
    at_work: Arc<Semaphore>,
    /// Work that uses processors: one at a time for each.
    workers: Arc<Semaphore>,
}

/// Stops the work for a request when it is dropped: with the answer, or with the connection of a client that is gone.
struct StopOnDrop(StopFlag);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Shared {
    /// Shares inputs and their guard.
    pub(crate) fn new(guard: Guard, subjects: Vec<Arc<Subject>>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            guard,
            subjects,
            at_work: Arc::new(Semaphore::new(MOST_REQUESTS)),
            workers: Arc::new(Semaphore::new(processors)),
        }
    }

    /// Answers a request, with the cookie to be set.
    async fn answer(&self, request: &Request<Incoming>) -> (Answer, Option<String>) {
        let error = |status, why: &str| (Answer::error(status, why), None);
        if let Err(refusal) = self.guard.check(request.method(), request.headers()) {
            return error(refusal.status, refusal.why);
        }
        let uri = request.uri();
        let (path, query) = (uri.path(), uri.query().unwrap_or(""));
        let asked = match parameters::request(path, query) {
            Ok(asked) => asked,
            Err(bad) => return error(StatusCode::BAD_REQUEST, &bad.0),
        };
        let mut cookie = None;
        if let Asked::File(path) = &asked {
            if let Some(token) = query.strip_prefix("token=").filter(|_| path == "/") {
                cookie = self.guard.cookie_for(token);
                if cookie.is_none() {
                    return error(
                        StatusCode::FORBIDDEN,
                        "the token is wrong: start from the address that `trace-cli serve` printed",
                    );
                }
            }
            return (answer(&[], asked, &StopFlag::default()), cookie);
        }
        if let Err(refusal) = self.guard.check_data(request.headers()) {
            return error(refusal.status, refusal.why);
        }
        let Ok(at_work) = Arc::clone(&self.at_work).try_acquire_owned() else {
            return error(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many requests at work: ask again later",
            );
        };
        let Ok(worker) = Arc::clone(&self.workers).acquire_owned().await else {
            return error(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is about to end",
            );
        };
        let subjects = self.subjects.clone();
        let stop_on_drop = StopOnDrop(StopFlag::default());
        let stop = stop_on_drop.0.clone();
        let work = tokio::task::spawn_blocking(move || {
            // Work that is stopped has its places until it ends: a client that leaves cannot start more than others.
            let _places = (at_work, worker);
            answer(&subjects, asked, &stop)
        });
        match work.await {
            Ok(answer) => (answer, None),
            Err(_) => error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the server failed: please report it",
            ),
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let known = request.headers().get(IF_NONE_MATCH).cloned();
        let (answer, cookie) = self.answer(&request).await;
        let mut response = Response::new(Full::default());
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        let mut set = |name: HeaderName, value: &'static str| {
            headers.insert(name, HeaderValue::from_static(value));
        };
        set(CONTENT_SECURITY_POLICY, POLICY);
        set(X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(REFERRER_POLICY, "no-referrer");
        set(
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        );
        set(
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        );
        set(CONTENT_TYPE, answer.content_type);
        if answer.status == StatusCode::METHOD_NOT_ALLOWED {
            set(ALLOW, "GET");
        }
        let tag = match &answer.freshness {
            Freshness::Forever(id) => HeaderValue::from_str(&format!("\"{id}\"")).ok(),
            Freshness::Now => None,
        };
        set(
            CACHE_CONTROL,
            match tag {
                Some(_) => "private, max-age=86400, immutable",
                None => "no-store",
            },
        );
        if let Some(cookie) = cookie.and_then(|cookie| HeaderValue::from_str(&cookie).ok()) {
            headers.insert(SET_COOKIE, cookie);
        }
        let is_known = tag.is_some() && known == tag;
        if let Some(tag) = tag {
            headers.insert(ETAG, tag);
        }
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            *response.body_mut() = Full::new(answer.body.into());
        }
        response
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(SLOW));
    let stream = Box::pin(stream);
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.respond(request).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(SLOW)
        .max_headers(HEAD_FIELDS)
        .max_buf_size(HEAD_BYTES);
    // A client that breaks the connection, or the rules, reads no more answers.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}
