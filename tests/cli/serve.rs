//! `trace-cli serve`: what it answers is what the events add up to, and it refuses everything else.

mod bins;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use annals_format::{BlockKind, CollectiveOperation, LaneKind, OverviewRow, RegionId};
use annals_merger::{MergeOptions, Reader, no_progress};
use annals_test_support::bodies;
use annals_test_support::calls::{Call, all_calls, lanes_of};
use annals_test_support::mpi_script::{Deed, Script};
use annals_test_support::synthetic::{Mix, Random, write_stretched};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::browser;

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server, until it is dropped.
pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) address: String,
    _output: BufReader<ChildStdout>,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        let shown = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {shown}"))
    }
}

fn serve_with(arguments: &[&Path], more: impl FnOnce(&mut Command)) -> Served {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    command.arg("serve").args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command.env("ANNALS_CACHE", "off");
    more(&mut command);
    let mut child = command.spawn().expect("trace-cli");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut address = String::new();
    output.read_line(&mut address).expect("an address");
    Served {
        child,
        address: address.trim().to_owned(),
        _output: output,
    }
}

pub(crate) fn serve(arguments: &[&Path]) -> Served {
    serve_with(arguments, |_| {})
}

/// Sends bytes, and returns what is answered before the connection ends.
fn exchange(stream: &mut (impl Read + Write), request: &str) -> Option<Answer> {
    stream.write_all(request.as_bytes()).ok()?;
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        // What was not read of the request resets the connection.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        head,
        body: bytes[end + 4..].to_vec(),
    })
}

impl Served {
    fn token(&self) -> &str {
        let token = self.address.split_once("token=");
        token.expect("a token").1
    }

    fn socket(&self) -> SocketAddr {
        let address = self.address.strip_prefix("http://").expect("an address");
        let address = address.split('/').next().expect("an address");
        address.parse().expect("an address")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.socket()).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    /// Returns the header fields of a page of the server.
    pub(crate) fn own_fields(&self) -> String {
        let port = self.socket().port();
        let token = self.token();
        format!(
            "Host: localhost:{port}\r\nSec-Fetch-Site: same-origin\r\nCookie: other=1; annals-{port}={token}\r\n"
        )
    }

    fn send(&self, line: &str, fields: &str) -> Answer {
        let request = format!("{line} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n");
        exchange(&mut self.connect(), &request).unwrap_or_else(|| panic!("no answer to {line}"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path}"), &self.own_fields())
    }

    pub(crate) fn traces(&self) -> Vec<Value> {
        let answer = self.get("/api/v1/traces");
        assert_eq!(answer.status, 200, "{}", answer.head);
        answer.json()["traces"].as_array().expect("traces").clone()
    }

    /// Waits until the first input can be asked. Returns its id.
    pub(crate) fn id(&self) -> String {
        let started = Instant::now();
        loop {
            let first = &self.traces()[0];
            match first["state"].as_str() {
                Some("ready") => return first["id"].as_str().expect("an id").to_owned(),
                Some("preparing" | "replaced") => assert!(started.elapsed() < PATIENCE, "{first}"),
                _ => panic!("{first}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn ask(&self, path: &str) -> Value {
        let id = self.id();
        let answer = self.get(&format!("/api/v1/traces/{id}/{path}"));
        let shown = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status, 200, "{path}: {} {shown}", answer.head);
        answer.json()
    }
}

/// Writes recordings of a synthetic program.
pub(crate) fn recordings(directory: &Path, ranks: u32, events: u64) -> PathBuf {
    let inputs = directory.join("run");
    std::fs::create_dir(&inputs).expect("a directory");
    for rank in 0..ranks {
        let stretch = 1 + u64::from(rank % 2);
        write_stretched(&inputs, rank, ranks, events, stretch, Mix::Halo).expect("a recording");
    }
    inputs
}

/// Writes a trace of a synthetic program.
pub(crate) fn trace(
    directory: &Path,
    name: &str,
    ranks: u32,
    events: u64,
    overview: bool,
) -> PathBuf {
    let own = directory.join(format!("{name}-recordings"));
    std::fs::create_dir(&own).expect("a directory");
    let inputs = recordings(&own, ranks, events);
    let mut options = MergeOptions::default();
    options.overview = overview;
    let path = directory.join(name);
    let plan = options.plan(&[inputs]).expect("recordings");
    plan.write_trace(&path, no_progress).expect("a trace");
    path
}

/// Writes a trace of a program that does what a script says.
pub(crate) fn trace_of(directory: &Path, name: &str, script: &Script) -> PathBuf {
    let inputs = directory.join(format!("{name}-recordings"));
    std::fs::create_dir(&inputs).expect("a directory");
    script.write(&inputs, &[]);
    let path = directory.join(name);
    let mut options = MergeOptions::default();
    options.overview = true;
    let plan = options.plan(&[inputs]).expect("recordings");
    plan.write_trace(&path, no_progress).expect("a trace");
    path
}

#[test]
fn others_are_refused() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 2, 2_000, true);
    let served = serve(&[&run]);
    let id = served.id();
    let (port, own) = (served.socket().port(), served.own_fields());
    let data = "GET /api/v1/traces";
    let token = served.token();
    let cookie = format!("Cookie: annals-{port}={token}\r\n");
    let wrong = token.replace('0', "1");
    let refused = [
        // Without the token, with a wrong one, with that of another server.
        (
            data,
            format!("Host: localhost:{port}\r\nSec-Fetch-Site: same-origin\r\n"),
            401,
        ),
        (
            data,
            format!(
                "Host: localhost:{port}\r\nSec-Fetch-Site: same-origin\r\nCookie: annals-{port}={wrong}0\r\n"
            ),
            401,
        ),
        (
            data,
            format!(
                "Host: localhost:{port}\r\nSec-Fetch-Site: same-origin\r\nCookie: annals-{}={token}\r\n",
                port ^ 1
            ),
            401,
        ),
        // By another name.
        (
            data,
            format!("Host: example.org\r\nSec-Fetch-Site: same-origin\r\n{cookie}"),
            421,
        ),
        (
            data,
            format!(
                "Host: 127.0.0.1.example.org:{port}\r\nSec-Fetch-Site: same-origin\r\n{cookie}"
            ),
            421,
        ),
        (
            data,
            format!("Sec-Fetch-Site: same-origin\r\n{cookie}"),
            421,
        ),
        ("GET /", format!("Host: example.org:{port}\r\n"), 421),
        // By a page of another origin, or something that does not say which.
        (
            data,
            format!("Host: localhost:{port}\r\nSec-Fetch-Site: cross-site\r\n{cookie}"),
            403,
        ),
        (
            data,
            format!("Host: localhost:{port}\r\nSec-Fetch-Site: same-site\r\n{cookie}"),
            403,
        ),
        (
            data,
            format!("Host: localhost:{port}\r\nSec-Fetch-Site: none\r\n{cookie}"),
            403,
        ),
        (
            data,
            format!("Host: localhost:{port}\r\nOrigin: http://example.org\r\n{cookie}"),
            403,
        ),
        (
            data,
            format!("Host: localhost:{port}\r\nOrigin: null\r\n{cookie}"),
            403,
        ),
        (data, format!("Host: localhost:{port}\r\n{cookie}"), 403),
        ("GET /?token=", format!("Host: localhost:{port}\r\n"), 403),
        (
            "GET /?token=00000000000000000000000000000000",
            format!("Host: localhost:{port}\r\n"),
            403,
        ),
    ];
    for (line, fields, status) in refused {
        let answer = served.send(line, &fields);
        assert_eq!(answer.status, status, "{line} {fields}");
        assert!(!answer.head.contains(token), "{}", answer.head);
    }
    for method in ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"] {
        let answer = served.send(&format!("{method} /api/v1/traces"), &own);
        assert_eq!(answer.status, 405, "{method}");
    }
    for path in [
        "/../Cargo.toml",
        "/etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/page/main.js",
        "//",
        "/main.js/",
    ] {
        assert_eq!(served.get(path).status, 404, "{path}");
    }
    for path in ["/api/v1/traces/../../x", "/api/v1/traces/%00/lanes"] {
        assert!([400, 410].contains(&served.get(path).status), "{path}");
    }
    // An origin that is the server's is enough, whatever the tunnel's port.
    let fields = format!("Host: localhost:9\r\nOrigin: http://localhost:9\r\n{cookie}");
    assert_eq!(served.send(data, &fields).status, 200);

    let page = served.send(
        &format!("GET /?token={token}"),
        &format!("Host: 127.0.0.1:{port}\r\n"),
    );
    assert_eq!(page.status, 200);
    for field in [
        "HttpOnly",
        "SameSite=Strict",
        "default-src 'none'",
        "nosniff",
        "no-referrer",
        "frame-ancestors 'none'",
    ] {
        assert!(page.head.contains(field), "{field}: {}", page.head);
    }
    assert!(
        page.head.contains(&format!("set-cookie: annals-{port}=")),
        "{}",
        page.head
    );

    // An answer that has its trace's id in the address is good for ever.
    let tile = served.get(&format!("/api/v1/traces/{id}/tiles/20/0?lanes=t0.0-3"));
    assert_eq!((tile.status, &tile.body[..4]), (200, &b"ANTL"[..]));
    assert!(tile.head.contains("immutable"), "{}", tile.head);
    let again = format!("{own}If-None-Match: \"{id}\"\r\n");
    let again = served.send(
        &format!("GET /api/v1/traces/{id}/tiles/20/0?lanes=t0.0-3"),
        &again,
    );
    assert_eq!((again.status, again.body.len()), (304, 0));
}

#[test]
fn hostile_numbers_are_refused_and_nothing_fails() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 2, 2_000, true);
    let served = serve(&[&run]);
    let id = served.id();
    let numbers = [
        "NaN",
        "-1",
        "18446744073709551616",
        "9223372036854775807",
        "-9223372036854775808",
        "1e9",
        "",
        "0x10",
        "٣",
        "63",
        "%00",
    ];
    let paths = [
        "tiles/N/0?lanes=t0.0",
        "tiles/20/N?lanes=t0.0",
        "tiles/20/0?lanes=tN.0",
        "tiles/20/0?lanes=t0.N",
        "tiles/20/0?lanes=N",
        "tiles/20/0?lanes=t0.0-N",
        "bins/20/N?count=5&lanes=a0.0",
        "bins/20/0?count=N&lanes=a0.0",
        "calls?location=N&at=0",
        "calls?location=0&at=N",
        "regions?from=N&to=5",
        "regions?from=0&to=N",
        "waits?from=N&to=N",
        "samples?from=N&to=N",
        "messages?from=0&to=N",
        "metrics?from=0&to=5&columns=N",
        "message-bins?from=0&to=5&columns=N",
        "metric-bins?from=0&to=N&columns=5",
        "search?text=N",
        "find?region=N&from=0&direction=forward",
        "find?region=0&from=N&direction=backward",
        "find?region=0&from=0&direction=N",
        "losses?from=N&to=0",
        "N",
    ];
    for path in paths {
        for number in numbers {
            let path = path.replace('N', number);
            let answer = served.get(&format!("/api/v1/traces/{id}/{path}"));
            let shown = String::from_utf8_lossy(&answer.body);
            assert!(
                [200, 400].contains(&answer.status),
                "{path}: {} {shown}",
                answer.status
            );
            if answer.status == 400 {
                assert!(
                    !answer.json()["error"].as_str().unwrap_or("").is_empty(),
                    "{path}"
                );
            }
        }
    }
    let many = (0..600)
        .map(|lane| format!("t{lane}.0"))
        .collect::<Vec<_>>()
        .join(",");
    for path in [
        format!("tiles/20/0?lanes={many}"),
        "tiles/20/0?lanes=t0.0&lanes=t1.0".to_owned(),
        "lanes?x=1".to_owned(),
    ] {
        assert_eq!(
            served.get(&format!("/api/v1/traces/{id}/{path}")).status,
            400,
            "{path}"
        );
    }
    // A head that is too large.
    let fields = format!("{}X: {}\r\n", served.own_fields(), "x".repeat(100_000));
    let request = format!("GET / HTTP/1.1\r\n{fields}\r\n");
    let answer = exchange(&mut served.connect(), &request);
    assert!(answer.is_none_or(|answer| answer.status == 431));
    served.ask("lanes");
}

#[test]
fn slow_clients_and_crowds_delay_no_other() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 2, 2_000, true);
    let served = serve(&[&run]);
    let id = served.id();
    // One never ends its request, one never reads.
    let mut slow = served.connect();
    slow.write_all(b"GET / HTTP/1.1\r\nHost:").expect("sent");
    let mut deaf = served.connect();
    let request = format!(
        "GET /api/v1/traces/{id}/lanes HTTP/1.1\r\n{}\r\n",
        served.own_fields()
    );
    for _ in 0..2_000 {
        if deaf.write_all(request.as_bytes()).is_err() {
            break;
        }
        deaf.set_write_timeout(Some(Duration::from_millis(1)))
            .expect("a timeout");
    }
    let crowd: Vec<TcpStream> = (0..1_000)
        .filter_map(|_| TcpStream::connect(served.socket()).ok())
        .collect();
    assert!(crowd.len() > 200, "{}", crowd.len());
    // Beyond the most, connections are closed; those that are open end after ten seconds.
    let started = Instant::now();
    let mut rest = Vec::new();
    let ended = slow.read_to_end(&mut rest);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    assert!(started.elapsed() < PATIENCE);
    drop(crowd);
    served.ask("lanes");
}

#[test]
fn the_token_is_no_argument_of_a_program() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 1, 500, true);
    let (browser, report) = (
        scratch.path().join("browser"),
        scratch.path().join("report"),
    );
    let script = format!(
        "#!/bin/sh\nstat -c %a \"$1\" >'{0}.new'\ncat \"$1\" >>'{0}.new'\nmv '{0}.new' '{0}'\nsleep 5\n",
        report.display()
    );
    std::fs::write(&browser, script).expect("a script");
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let served = serve_with(&[&run, Path::new("--open")], |command| {
        command.env("BROWSER", &browser);
    });
    let started = Instant::now();
    while !report.exists() {
        assert!(started.elapsed() < PATIENCE, "no browser was started");
        std::thread::sleep(Duration::from_millis(20));
    }
    let page = std::fs::read_to_string(&report).expect("a page");
    assert!(page.starts_with("600\n"), "{page}");
    assert!(page.contains(&served.address), "{page}");
    let token = served.token().as_bytes();
    for process in std::fs::read_dir("/proc").expect("processes").flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(
            !line.windows(token.len()).any(|part| part == token),
            "{:?}",
            process.path()
        );
    }
}

#[test]
fn a_socket_is_its_owners() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 1, 500, true);
    let path = scratch.path().join("socket");
    let served = serve(&[&run, Path::new("--socket"), &path]);
    let mode = std::fs::metadata(&path)
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let request = format!(
        "GET /?token={} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        served.token()
    );
    let mut stream = UnixStream::connect(&path).expect("a connection");
    let answer = exchange(&mut stream, &request).expect("an answer");
    assert_eq!(answer.status, 200);
    // A second server does not take it from the first.
    let second = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .arg("serve")
        .arg(&run)
        .arg("--socket")
        .arg(&path)
        .output();
    assert_eq!(second.expect("trace-cli").status.code(), Some(1));
}

#[test]
fn only_this_machine_is_listened_to() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 1, 500, true);
    for (arguments, code, what) in [
        (vec!["--listen", "0.0.0.0"], 2, "beyond this machine"),
        (vec!["--listen", "192.168.1.1"], 2, "beyond this machine"),
        (vec!["--index", "x", "more"], 2, "one trace"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
        let output = command
            .arg("serve")
            .arg(&run)
            .args(&arguments)
            .output()
            .expect("trace-cli");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(what), "{arguments:?}: {said}");
    }
}

#[test]
fn a_file_that_was_replaced_is_gone_and_opened_again() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 2, 2_000, false);
    let other = trace(scratch.path(), "other.annals", 3, 1_000, false);
    // Without an overview, the trace is not touched: it gets one elsewhere.
    let before = std::fs::read(&run).expect("a trace");
    let index = scratch.path().join("index");
    let served = serve(&[&run, Path::new("--index"), &index]);
    let id = served.id();
    assert_eq!(
        served.ask("lanes")["locations"].as_array().map(Vec::len),
        Some(2)
    );
    assert!(std::fs::read(&run).expect("a trace") == before);
    assert!(index.exists());
    std::fs::rename(&other, &run).expect("replaced");
    assert_eq!(
        served.get(&format!("/api/v1/traces/{id}/lanes")).status,
        410
    );
    let started = Instant::now();
    while served.id() == id {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(
        served.ask("lanes")["locations"].as_array().map(Vec::len),
        Some(3)
    );
}

#[test]
fn an_overview_is_added_to_whole_traces_only() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 2, 20_000, false);
    let indexed = scratch.path().join("indexed.annals");
    let index = |input: &Path, output: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
        let command = command.arg("index").arg(input).arg("-o").arg(output);
        let done = command.output().expect("trace-cli");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), said)
    };
    assert_eq!(index(&run, &indexed).0, Some(0));
    let merged = trace(scratch.path(), "merged.annals", 2, 20_000, true);
    let opened = [&indexed, &merged].map(|path| Reader::open(path).expect("a trace"));
    let [of_index, of_merge] = opened.each_ref().map(|reader| {
        let blocks = reader.trace().expect("a trace").overview().iter();
        let rows = blocks.flat_map(|entry| {
            reader
                .trace()
                .expect("a trace")
                .load_bins::<OverviewRow>(entry)
                .expect("a block")
        });
        rows.collect::<Vec<_>>()
    });
    assert!(!of_index.is_empty());
    assert_eq!(of_index, of_merge);
    let verified = annals_merger::verify(&indexed, &[]).expect("a trace");
    assert_eq!((verified.mismatches, verified.damage.len()), (vec![], 0));

    let none = scratch.path().join("none.annals");
    let recordings = scratch.path().join("run.annals-recordings/run");
    let recording = std::fs::read_dir(recordings).expect("recordings").next();
    let recording = recording.expect("a recording").expect("a recording").path();
    let cut = scratch.path().join("cut.annals");
    let bytes = std::fs::read(&run).expect("a trace");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).expect("a file");
    for (input, why) in [
        (&recording, "is a recording"),
        (&indexed, "has an overview already"),
        (&cut, "is damaged"),
    ] {
        let (code, said) = index(input, &none);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(!none.exists());
    }
}

#[test]
fn joined_slices_may_have_an_overview() {
    let scratch = tempfile::tempdir().expect("a directory");
    trace(scratch.path(), "run.annals", 2, 20_000, false);
    let recordings = scratch.path().join("run.annals-recordings/run");
    let path = |name: &str| scratch.path().join(name);
    let merge = |arguments: &[&OsStr]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
        let done = command.arg("merge").args(arguments).output();
        let done = done.expect("trace-cli");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(0), "{said}");
    };
    let slices = ["1/2", "2/2"].map(|slice| {
        let output = path(&format!("slice-{}.annals", &slice[..1]));
        let flags = ["--slice", slice, "-o"].map(OsStr::new);
        merge(&[&flags[..], &[output.as_os_str(), recordings.as_os_str()]].concat());
        output
    });
    let joined = path("joined.annals");
    let flags = ["--join", "--index", "-o"].map(OsStr::new);
    let files = [&joined, &slices[1], &slices[0]].map(|file| file.as_os_str());
    merge(&[flags, files].concat());
    let reader = Reader::open(&joined).expect("a trace");
    assert!(!reader.trace().expect("a trace").overview().is_empty());
    // The overview agrees with the events.
    let verified = annals_merger::verify(&joined, &[]).expect("a trace");
    assert_eq!((verified.mismatches, verified.damage.len()), (vec![], 0));
    let left = std::fs::read_dir(scratch.path()).expect("a directory");
    let names = left.map(|entry| entry.expect("an entry").file_name());
    let names: Vec<_> = names.collect();
    let is_temporary = |name: &OsString| name.to_string_lossy().ends_with(".tmp");
    assert!(!names.iter().any(is_temporary), "{names:?}");
}

#[test]
fn an_overview_is_made_once_and_kept_in_the_cache() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 2, 20_000, false);
    let before = std::fs::read(&run).expect("a trace");
    let cache = scratch.path().join("cache");
    let files = || {
        let entries = std::fs::read_dir(cache.join("annals")).expect("a directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let mut files: Vec<PathBuf> = paths
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "annals")
            })
            .collect();
        files.sort();
        files
    };
    let bins = |value: &str| {
        let served = serve_with(&[&run], |command| {
            command
                .env("XDG_CACHE_HOME", &cache)
                .env("ANNALS_CACHE", value);
        });
        served.ask("lanes")
    };
    let found = bins("on");
    let made = files();
    let [made] = &made[..] else {
        panic!("{made:?}");
    };
    let bytes = std::fs::read(made).expect("an overview");
    let number = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(made).expect("a file"));
    assert_eq!(bins("on"), found);
    let again = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(made).expect("a file"));
    assert_eq!((files().len(), number), (1, again), "it is not made again");

    // One that is damaged, cut off or of another trace is made anew; two that ask at the same time get one.
    let other = trace(scratch.path(), "other.annals", 2, 10_000, false);
    let served = serve_with(&[&other], |command| {
        command
            .env("XDG_CACHE_HOME", &cache)
            .env("ANNALS_CACHE", "on");
    });
    served.ask("lanes");
    drop(served);
    let others = files()
        .into_iter()
        .find(|path| path != made)
        .expect("another");
    for wrong in [
        &bytes[..bytes.len() / 2],
        b"",
        &std::fs::read(&others).expect("an overview"),
    ] {
        std::fs::write(made, wrong).expect("a file");
        std::thread::scope(|scope| {
            let asked = [(); 2].map(|()| scope.spawn(|| bins("on")));
            for asked in asked {
                assert_eq!(asked.join().expect("an answer"), found);
            }
        });
        assert_eq!(std::fs::read(made).expect("an overview"), bytes);
    }
    // Where none can be kept, there is one all the same; the trace stays as it is.
    std::fs::remove_dir_all(&cache).expect("a directory");
    std::fs::write(&cache, "no directory").expect("a file");
    assert_eq!(bins("on"), found);
    assert_eq!(bins("off"), found);
    assert_eq!(std::fs::read(&run).expect("a trace"), before);
}

#[test]
fn temporary_files_end_with_the_server() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 2, 2_000, false);
    let temporary = scratch.path().join("temporary");
    std::fs::create_dir(&temporary).expect("a directory");
    let count = || std::fs::read_dir(&temporary).expect("a directory").count();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut served = serve_with(&[&run], |command| {
            command.env("TMPDIR", &temporary);
        });
        served.ask("lanes");
        assert_eq!(count(), 1);
        kill_process(Pid::from_child(&served.child), signal).expect("sent");
        let ended = served.child.wait().expect("a process");
        assert_eq!((ended.code(), count()), (Some(0), 0), "{signal:?}");
    }
}

#[test]
fn recordings_are_merged_and_what_is_damaged_is_said() {
    let scratch = tempfile::tempdir().expect("a directory");
    let inputs = recordings(scratch.path(), 2, 2_000);
    let served = serve(&[&inputs]);
    let lanes = served.ask("lanes");
    assert_eq!(lanes["events"], "4000");
    assert_eq!(lanes["complete"], true);
    drop(served);
    // A trace that was cut off is shown up to where it was cut.
    let run = trace(scratch.path(), "run.annals", 2, 40_000, true);
    let bytes = std::fs::read(&run).expect("a trace");
    std::fs::write(&run, &bytes[..bytes.len() / 2]).expect("a file");
    let served = serve(&[&run]);
    let lanes = served.ask("lanes");
    assert_eq!(lanes["complete"], false);
    assert!(!lanes["damage"].as_array().expect("damage").is_empty());
    let losses = served.ask("losses?from=-9223372036854775808&to=9223372036854775807");
    assert!(
        !losses["losses"].as_array().expect("losses").is_empty(),
        "{losses}"
    );
    // What is no trace at all is said, too.
    let none = scratch.path().join("none.annals");
    std::fs::write(&none, "nothing").expect("a file");
    let served = serve(&[&none]);
    let started = Instant::now();
    let failed = loop {
        let found = served.traces().remove(0);
        if found["state"] != "preparing" || started.elapsed() > PATIENCE {
            break found;
        }
    };
    assert_eq!(failed["state"], "failed", "{failed}");
}

#[test]
fn damaged_blocks_of_an_overview_are_said() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 2, 20_000, true);
    let bytes = std::fs::read(&run).expect("a trace");
    let messages = "message-bins?from=-9223372036854775808&to=9223372036854775807&columns=100";
    let whole = serve(&[&run]);
    assert_eq!(whole.ask(messages)["damage"], serde_json::json!([]));
    assert_eq!(whole.ask("lanes")["damage"], serde_json::json!([]));
    drop(whole);
    for kind in [BlockKind::Overview, BlockKind::Messages] {
        let blocks = bodies(&bytes, kind);
        assert!(!blocks.is_empty(), "{kind:?}");
        let mut damaged = bytes.clone();
        for (offset, length) in blocks {
            damaged[offset + length / 2] ^= 0x55;
        }
        let path = scratch.path().join(format!("{kind:?}.annals"));
        std::fs::write(&path, damaged).expect("a file");
        let served = serve(&[&path]);
        let lanes = served.ask("lanes");
        assert_eq!(lanes["complete"], false, "{kind:?}");
        let damage = lanes["damage"].as_array().expect("damage").clone();
        let what = damage
            .first()
            .and_then(Value::as_str)
            .expect("what is damaged");
        assert!(what.starts_with("overview: "), "{what}");
        assert_eq!(served.ask(messages)["damage"], lanes["damage"], "{kind:?}");
    }
}

/// Values of a bin: calls, busy, longest, time by region.
type BinValues = (u64, i64, i64, BTreeMap<RegionId, i64>);

/// Returns the values of a bin of a lane in the simplest way.
fn values(calls: &[&Call], level: u8, bin: i64, is_of_group: bool) -> BinValues {
    let (from_ns, to_ns) = (bin << level, (bin + 1) << level);
    let mut found: BinValues = Default::default();
    for call in calls {
        let call_end_ns = if is_of_group {
            call.drawn_to_ns
        } else {
            call.to_ns
        };
        if call.has_ended && call.to_ns >> level == bin {
            found.0 += 1;
            found.2 = found.2.max(call.to_ns - call.from_ns);
        }
        let inside_ns = call_end_ns.min(to_ns) - call.from_ns.max(from_ns);
        if inside_ns > 0 {
            found.1 += inside_ns;
            *found.3.entry(call.region).or_default() += inside_ns;
        }
    }
    found
}

/// Calls by kind, number and depth of the lane.
type Lanes<'a> = BTreeMap<(LaneKind, u32, u32), Vec<&'a Call>>;

/// Returns the calls of all lanes.
fn by_lane<'a>(reader: &Reader, calls: &'a [Call]) -> Lanes<'a> {
    let lanes = lanes_of(reader.definitions());
    let mut by_lane: Lanes<'_> = BTreeMap::new();
    for call in calls {
        for (kind, id) in &lanes[call.location] {
            let lane = by_lane.entry((*kind, *id, call.depth)).or_default();
            lane.push(call);
        }
    }
    by_lane
}

/// Checks the values of some bins of a lane. Returns how many of them have calls.
fn check_bins(
    served: &Served,
    lanes: &Lanes<'_>,
    lane: &(LaneKind, u32, u32),
    bins: (u8, std::ops::Range<i64>),
) -> usize {
    let ((kind, id, depth), (level, bins)) = (*lane, bins);
    let letter = match kind {
        LaneKind::Location => 't',
        LaneKind::Process => 'p',
        LaneKind::Host => 'h',
        LaneKind::Source => 's',
        LaneKind::All => 'a',
    };
    let (first, count) = (bins.start, bins.end - bins.start);
    let path = format!("bins/{level}/{first}?count={count}&lanes={letter}{id}.{depth}");
    let found = served.ask(&path);
    let number = |bin: &Value, name: &str| -> i64 {
        let text = bin[name].as_str().expect("a number");
        text.parse().expect("a number")
    };
    let mut by_bin: BTreeMap<i64, Value> = BTreeMap::new();
    for bin in found["lanes"][0].as_array().expect("bins") {
        for more in 0..bin["count"].as_i64().expect("a count") {
            by_bin.insert(number(bin, "bin") + more, bin.clone());
        }
    }
    let is_of_group = kind != LaneKind::Location;
    for bin in bins {
        let expected = values(&lanes[lane], level, bin, is_of_group);
        let place = format!("bin {bin} of {path}");
        let Some(found) = by_bin.get(&bin) else {
            assert_eq!((expected.0, expected.1), (0, 0), "{place}");
            continue;
        };
        let by_time = |known: &(&RegionId, &i64)| (*known.1, std::cmp::Reverse(*known.0));
        let most = expected.3.iter().max_by_key(by_time);
        let region = most.map(|most| u64::from(most.0.get()));
        let region_ns = most.map_or(0, |most| *most.1);
        assert_eq!(number(found, "calls"), expected.0 as i64, "{place}");
        assert_eq!(number(found, "busy_ns"), expected.1, "{place}");
        assert_eq!(number(found, "longest_ns"), expected.2, "{place}");
        assert_eq!(number(found, "region_ns"), region_ns, "{place}");
        assert_eq!(found["region"].as_u64(), region, "{place}");
    }
    by_bin.len()
}

#[test]
fn all_values_are_those_of_the_events() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 4, 40_000, true);
    let reader = Reader::open(&run).expect("a trace");
    let calls = all_calls(&reader);
    let lanes = by_lane(&reader, &calls);
    let keys: Vec<_> = lanes.keys().copied().collect();
    // Of one half of the blocks of the overview, the second trace has nothing that can be read.
    let damaged = scratch.path().join("damaged.annals");
    let mut bytes = std::fs::read(&run).expect("a trace");
    for entry in reader
        .trace()
        .expect("a trace")
        .overview()
        .iter()
        .step_by(2)
    {
        bytes[entry.offset as usize + 60] ^= 1;
    }
    std::fs::write(&damaged, bytes).expect("a file");
    let end_ns = reader.extent().last_ns;
    let mut random = Random::new(38);
    for (path, rounds) in [(&run, 2_000), (&damaged, 400)] {
        let served = serve(&[path]);
        let mut checked = 0;
        for _ in 0..rounds {
            let level = (random.draw() % 34) as u8;
            let lane = &keys[random.draw() as usize % keys.len()];
            let count = 1 + (random.draw() % 6) as i64;
            let last = (end_ns >> level) + 2;
            let first = (random.draw() % last as u64) as i64;
            let bins = (level, first..first + count);
            checked += check_bins(&served, &lanes, lane, bins);
        }
        assert!(checked * 2 > rounds, "{checked} bins");
    }
}

/// 20 000 lanes; with `ANNALS_LONG=1`, 100 000.
#[test]
fn very_many_lanes_are_added_up() {
    let is_long = std::env::var_os("ANNALS_LONG").is_some();
    let threads = if is_long { 100_000 } else { 20_000 };
    let scratch = tempfile::tempdir().expect("a directory");
    let mut script = Script::of_threads(threads);
    for thread in 0..threads {
        let at = |us: i64| (us * 1000 + thread as i64 * 7) * 3;
        let deeds = [
            (at(0), Deed::Enter("main")),
            (at(20 + thread as i64 % 50), Deed::Enter("solve")),
            (at(90), Deed::Leave("solve")),
            (at(100), Deed::Leave("main")),
        ];
        script.rank(thread, &deeds);
    }
    let run = trace_of(scratch.path(), "run.annals", &script);
    let reader = Reader::open(&run).expect("a trace");
    let calls = all_calls(&reader);
    let lanes = by_lane(&reader, &calls);
    let served = serve(&[&run]);
    let listed = served.ask("lanes");
    assert_eq!(listed["locations"].as_array().map(Vec::len), Some(threads));
    let end_ns = reader.extent().last_ns;
    let groups = lanes.keys().filter(|lane| lane.0 != LaneKind::Location);
    for lane in groups {
        for level in [8, 14, 18, 20, 22, 30] {
            let middle = (end_ns >> level) / 2;
            check_bins(&served, &lanes, lane, (level, middle..middle + 5));
        }
    }
}

#[test]
fn the_page_has_the_types_that_it_says() {
    browser::check_types();
}

/// Writes a trace of four ranks that pass a message around and meet in a barrier, again and again; rank 1 works longer.
pub(crate) fn mpi_trace(directory: &Path, name: &str, steps: i64) -> PathBuf {
    let mut script = Script::new(4);
    for rank in 0..4_u32 {
        let mut deeds = vec![(0, Deed::Enter("main"))];
        for step in 0..steps {
            let at = |us: i64| (step * 400 + us) * 1000;
            let work = if rank == 1 { 200 } else { 100 };
            let arrived = if rank == 2 { 230 } else { 140 };
            let (next, before) = ((rank + 1) % 4, (rank + 3) % 4);
            deeds.extend([
                (at(10), Deed::Enter("solve")),
                (at(10 + work), Deed::Leave("solve")),
                (at(12 + work), Deed::Enter("MPI_Send")),
                (at(14 + work), Deed::Send(next, 7)),
                (at(20 + work), Deed::Leave("MPI_Send")),
                (at(22 + work), Deed::Enter("MPI_Recv")),
                (at(arrived.max(24 + work)), Deed::Receive(before, 7)),
                (at(arrived.max(24 + work) + 10), Deed::Leave("MPI_Recv")),
                (at(260), Deed::Enter("MPI_Barrier")),
                (at(262), Deed::Begin(CollectiveOperation::Barrier, 0)),
                (at(270), Deed::End(CollectiveOperation::Barrier, 0)),
                (at(280), Deed::Leave("MPI_Barrier")),
            ]);
        }
        deeds.push((steps * 400_000, Deed::Leave("main")));
        script.rank(rank as usize, &deeds);
    }
    trace_of(directory, name, &script)
}

/// Lets a browser use the page of some traces.
fn use_page(traces: &[&Path], kind: &str) {
    let served = serve(traces);
    let arguments = [OsStr::new(&served.address), OsStr::new(kind)];
    browser::check("serve.mjs", &arguments);
}

#[test]
fn a_browser_uses_the_page() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = mpi_trace(scratch.path(), "run.annals", 20);
    use_page(&[&run], "one");
}

#[test]
fn a_browser_compares_two_traces() {
    let scratch = tempfile::tempdir().expect("a directory");
    let before = mpi_trace(scratch.path(), "before.annals", 20);
    let after = mpi_trace(scratch.path(), "after.annals", 15);
    use_page(&[&before, &after], "two");
}

#[test]
fn a_browser_shows_what_is_left_of_damaged_traces() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = mpi_trace(scratch.path(), "run.annals", 20);
    let cut = scratch.path().join("cut.annals");
    let bytes = std::fs::read(&run).expect("a trace");
    std::fs::write(&cut, &bytes[..bytes.len() * 2 / 3]).expect("a file");
    let none = scratch.path().join("none.annals");
    std::fs::write(&none, "nothing").expect("a file");
    use_page(&[&run, &cut], "damaged");
    use_page(&[&none, &cut], "failed");
}

#[test]
fn a_browser_moves_fast_in_a_large_trace() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 16, 100_000, true);
    use_page(&[&run], "large");
}
