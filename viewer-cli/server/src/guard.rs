//! Which requests are answered: those of pages of this server, in a browser that was given the token.
//!
//! A page of another origin can send requests to servers of this machine. It cannot know the token; a name that it makes
//! point here (DNS rebinding) is no name of this machine; and the browser says of which origin a request is
//! (Fetch Metadata, W3C; RFC 6454).

use hyper::header::{COOKIE, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{Method, StatusCode};

use crate::token::Token;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    /// The status of the answer.
    pub(crate) status: StatusCode,
    /// What is wrong, for the reader of the answer.
    pub(crate) why: &'static str,
}

const fn refusal(status: StatusCode, why: &'static str) -> Refusal {
    Refusal { status, why }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    // Two of them may mean different things to different readers.
    values.next().is_none().then(|| value.to_owned())
}

/// Returns whether a host is this machine, whatever the port: a tunnel may have another one.
fn is_this_machine(host: &str) -> bool {
    let (name, port) = match host.strip_prefix("[::1]") {
        Some(rest) => (
            "[::1]",
            rest.strip_prefix(':').or(rest.is_empty().then_some("0")),
        ),
        None => match host.rsplit_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, Some("0")),
        },
    };
    let is_port = port.is_some_and(|port| port.parse::<u16>().is_ok());
    is_port && ["localhost", "127.0.0.1", "[::1]"].contains(&name.to_ascii_lowercase().as_str())
}

/// The guard of a server.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    token: Token,
    /// The name of the cookie: cookies of one machine are shared by all ports.
    cookie: String,
}

impl Guard {
    /// Guards a server. `number` distinguishes it from others of this machine: its port.
    pub(crate) fn new(token: Token, number: u32) -> Self {
        let cookie = format!("annals-{number}");
        Self { token, cookie }
    }

    /// Checks what every request needs.
    ///
    /// # Errors
    /// If it does more than read, or was not sent to this machine by name.
    pub(crate) fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        if method != Method::GET {
            return Err(refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET"));
        }
        match text(headers, &HOST) {
            Some(host) if is_this_machine(&host) => Ok(()),
            _ => Err(refusal(
                StatusCode::MISDIRECTED_REQUEST,
                "the host must be localhost, 127.0.0.1 or [::1]",
            )),
        }
    }

    /// Checks what a request for data needs.
    ///
    /// # Errors
    /// If it has no cookie of this server, or was sent by a page of another origin.
    pub(crate) fn check_data(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let is_same_origin = match (text(headers, &FETCH_SITE), text(headers, &ORIGIN)) {
            (Some(site), _) => site == "same-origin",
            (None, Some(origin)) => {
                let host = text(headers, &HOST);
                host.is_some_and(|host| origin.eq_ignore_ascii_case(&format!("http://{host}")))
            }
            (None, None) => false,
        };
        if !is_same_origin {
            return Err(refusal(
                StatusCode::FORBIDDEN,
                "only pages of this server may ask (Sec-Fetch-Site or Origin)",
            ));
        }
        let cookies = headers.get_all(COOKIE).iter();
        let cookies = cookies.filter_map(|value| value.to_str().ok());
        let mut cookies = cookies.flat_map(|value| value.split(';'));
        let is_known = cookies.any(|cookie| {
            let pair = cookie.trim().split_once('=');
            pair.is_some_and(|(name, value)| name == self.cookie && self.token.is(value))
        });
        match is_known {
            true => Ok(()),
            false => Err(refusal(
                StatusCode::UNAUTHORIZED,
                "open the address that `trace-cli serve` printed: it has the token",
            )),
        }
    }

    /// Returns the cookie in exchange for the token. `None`: the token is wrong.
    pub(crate) fn cookie_for(&self, token: &str) -> Option<String> {
        self.token.is(token).then(|| {
            let (name, value) = (&self.cookie, self.token.digits());
            format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_of_this_machine() {
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:9",
        ] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "localhost.example.org",
            "127.0.0.1.nip.io:80",
            "localhost:",
            "localhost:99999",
            "[::1]x",
            "0.0.0.0",
            "127.0.0.1:80:80",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
