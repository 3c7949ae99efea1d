//! Answers to requests, one at a time: as much of HTTP/1.1 as a scrape takes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use prometheus::TEXT_FORMAT;

/// Bytes of a request at most.
const ROOM: usize = 8 << 10;
/// Headers of a request at most.
const HEADERS: usize = 64;
/// Time that a client has to send its request, and to take the answer: others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers that a request can get.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Page { with_body: bool },
    NotFound,
    NotAllowed,
    Malformed,
}

/// Reads a request and answers it.
pub(super) fn answer(stream: &TcpStream, page: impl FnOnce() -> Result<String, String>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let wanted = read(stream)?;
    let (status, kind, body) = match wanted {
        Wanted::Page { .. } => match page() {
            Ok(page) => ("200 OK", TEXT_FORMAT, page),
            Err(why) => ("500 Internal Server Error", "text/plain", format!("{why}\n")),
        },
        Wanted::NotFound => ("404 Not Found", "text/plain", "metrics are at /metrics\n".to_owned()),
        Wanted::NotAllowed => ("405 Method Not Allowed", "text/plain", "metrics are read by GET\n".to_owned()),
        Wanted::Malformed => ("400 Bad Request", "text/plain", "the request is no HTTP\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if wanted == (Wanted::Page { with_body: false }) { "" } else { &body };
    write(stream, [head.as_bytes(), body.as_bytes()].concat().as_slice())
}

fn write(mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let deadline = Deadline::new();
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(deadline.left()?))?;
        match stream.write(bytes)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

/// The end of the time that a client has.
struct Deadline(Instant);

impl Deadline {
    fn new() -> Deadline {
        Deadline(Instant::now() + PATIENCE)
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

fn read(mut stream: &TcpStream) -> io::Result<Wanted> {
    let (mut bytes, deadline) = (Vec::new(), Deadline::new());
    loop {
        stream.set_read_timeout(Some(deadline.left()?))?;
        let mut room = [0; 1024];
        match stream.read(&mut room)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => bytes.extend(&room[..count]),
        }
        match wanted(&bytes) {
            Some(wanted) => return Ok(wanted),
            None if bytes.len() >= ROOM => return Ok(Wanted::Malformed),
            None => {}
        }
    }
}

/// `None`: more of the request has to come.
fn wanted(bytes: &[u8]) -> Option<Wanted> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Err(_) => return Some(Wanted::Malformed),
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
    }
    let path = request.path.unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    Some(match request.method.unwrap_or_default() {
        "GET" | "HEAD" if path != "/metrics" => Wanted::NotFound,
        "GET" => Wanted::Page { with_body: true },
        "HEAD" => Wanted::Page { with_body: false },
        _ => Wanted::NotAllowed,
    })
}

#[cfg(test)]
mod tests {
    use super::{Wanted, wanted};

    #[test]
    fn requests_are_told_apart() {
        let of = |text: &str| wanted(text.as_bytes());
        assert_eq!(of("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Some(Wanted::Page { with_body: true }));
        assert_eq!(of("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n"), Some(Wanted::Page { with_body: false }));
        assert_eq!(of("GET / HTTP/1.1\r\n\r\n"), Some(Wanted::NotFound));
        assert_eq!(of("POST /metrics HTTP/1.1\r\n\r\n"), Some(Wanted::NotAllowed));
        assert_eq!(of("GET /metrics HTT"), None);
        assert_eq!(of("\u{0}\u{1}"), Some(Wanted::Malformed));
    }
}
