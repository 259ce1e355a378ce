//! Bytes of two connections that are passed on both ways, until both ends have ended.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::link::make_patient;

/// Bytes that are read at once.
const BUFFER: usize = 64 << 10;
/// The pause between two looks whether a connection that takes no bytes has been ended.
const LOOK: Duration = Duration::from_secs(1);
/// How long a TCP connection is idle until the system asks its other end, and the pause between two questions.
const KEEPALIVE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(10)];

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// To a mesh address, or to the loopback.
    Tcp(Arc<TcpStream>),
    /// To a unix socket.
    Unix(UnixStream),
}

impl Stream {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&**stream).read(buffer),
            Self::Unix(stream) => (&*stream).read(buffer),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&**stream).write(bytes),
            Self::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn shutdown(&self, how: Shutdown) {
        // One that is not connected any more is shut down already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        };
    }

    fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                let [idle, pause] = KEEPALIVE;
                stream.set_nodelay(true)?;
                // A program may read nothing for minutes and still be there.
                make_patient(stream)?;
                stream.set_read_timeout(None)?;
                stream.set_write_timeout(Some(LOOK))?;
                let keepalive = TcpKeepalive::new().with_time(idle).with_interval(pause);
                SockRef::from(&**stream).set_tcp_keepalive(&keepalive)
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(None)?;
                stream.set_write_timeout(Some(LOOK))
            }
        }
    }

    /// Has the connection end with a reset once it is dropped.
    pub(crate) fn reset(&self) {
        if let Self::Tcp(stream) = self {
            let _ = SockRef::from(&**stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Has the connection end with a reset, so that its other end does not take what came for everything.
    fn break_off(&self) {
        self.reset();
        // The thread that reads returns; the thread that writes has a time limit.
        self.shutdown(Shutdown::Read);
    }
}

/// Two connections whose bytes are passed on.
#[derive(Debug)]
struct Pair {
    ends: [Stream; 2],
    /// A write has failed, so that the bytes of the other direction are not all there are.
    is_broken: AtomicBool,
    is_ended: AtomicBool,
}

impl Pair {
    fn pass(&self) {
        let [one, other] = &self.ends;
        if one.prepare().and_then(|()| other.prepare()).is_err() {
            return;
        }
        thread::scope(
            |scope| match thread::Builder::new().spawn_scoped(scope, || self.half(one, other)) {
                Ok(_) => self.half(other, one),
                Err(error) => {
                    tracing::info!(%error, "a connection has no thread, and is closed");
                    self.end();
                }
            },
        );
        if self.is_broken.load(Ordering::Acquire) {
            self.end();
        }
    }

    /// Passes bytes in one direction, and then the end of it.
    fn half(&self, from: &Stream, to: &Stream) {
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = from.read(&mut buffer);
            if self.is_ended.load(Ordering::Acquire) {
                return;
            }
            match read {
                Ok(0) if self.is_broken.load(Ordering::Acquire) => return self.end(),
                Ok(0) => return to.shutdown(Shutdown::Write),
                Ok(more) => {
                    // What the other end has still to say is passed on.
                    if self.write(to, buffer.get(..more).unwrap_or_default()).is_err() {
                        return self.is_broken.store(true, Ordering::Release);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.end(),
            }
        }
    }

    fn write(&self, to: &Stream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match to.write(bytes) {
                _ if self.is_ended.load(Ordering::Acquire) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Ok(more) => bytes = bytes.get(more..).unwrap_or_default(),
                // A connection that the system gives up has another error than one without room: TimedOut.
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.ends.iter().for_each(Stream::break_off);
    }
}

/// Pairs that end together.
#[derive(Debug, Default)]
pub struct Group(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_ended: bool,
    pairs: Vec<Arc<Pair>>,
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes bytes between two connections until both have ended, or the group has. Each end of one direction is
    /// passed on; a connection that breaks ends the other one with a reset.
    pub fn pass(&self, one: Stream, other: Stream) {
        let pair = Arc::new(Pair {
            ends: [one, other],
            is_broken: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
        });
        let mut inner = self.lock();
        if inner.is_ended {
            return;
        }
        inner.pairs.push(Arc::clone(&pair));
        drop(inner);
        pair.pass();
        self.lock().pairs.retain(|one| !Arc::ptr_eq(one, &pair));
    }

    /// Ends all pairs, and those that would still come.
    pub fn end(&self) {
        let mut inner = self.lock();
        inner.is_ended = true;
        inner.pairs.iter().for_each(|pair| pair.end());
    }

    /// The number of pairs.
    pub fn count(&self) -> usize {
        self.lock().pairs.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use std::net::TcpListener;

    use super::*;

    fn tcp() -> (TcpStream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        (one, Stream::Tcp(Arc::new(other)))
    }

    fn unix() -> (UnixStream, Stream) {
        let (one, other) = UnixStream::pair().unwrap();
        (one, Stream::Unix(other))
    }

    #[test]
    fn a_reader_that_waits_for_long_is_not_given_up() {
        let (_client, one) = tcp();
        let Stream::Tcp(stream) = &one else {
            panic!("no stream of TCP")
        };
        crate::link::prepare(stream).unwrap();
        let of = || SockRef::from(&**stream).tcp_user_timeout().unwrap();
        assert!(of().is_some());
        one.prepare().unwrap();
        assert_eq!(of(), None);
    }

    #[test]
    fn half_a_connection_ends_alone() {
        let ((mut client, one), (mut service, other)) = (tcp(), unix());
        let group = Group::default();
        thread::scope(|scope| {
            scope.spawn(|| group.pass(one, other));
            let question = vec![7; 300_000];
            let sent = question.clone();
            let mut writer = client.try_clone().unwrap();
            scope.spawn(move || {
                writer.write_all(&sent).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let mut heard = Vec::new();
            service.read_to_end(&mut heard).unwrap();
            assert_eq!(heard, question);
            service.write_all(b"answer").unwrap();
            drop(service);
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, b"answer");
        });
        assert_eq!(group.count(), 0);
    }

    #[test]
    fn a_reset_is_passed_on_as_one() {
        let ((client, one), (mut service, other)) = (tcp(), tcp());
        let group = Group::default();
        thread::scope(|scope| {
            scope.spawn(|| group.pass(one, other));
            SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
            (&client).write_all(b"half of it").unwrap();
            service.read_exact(&mut [0; 10]).unwrap();
            drop(client);
            let error = service.read(&mut [0; 1]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        });
    }

    #[test]
    fn a_group_ends_those_that_wait_for_room_too() {
        let ((mut client, one), (service, other)) = (tcp(), tcp());
        let group = Group::default();
        thread::scope(|scope| {
            let passes = scope.spawn(|| group.pass(one, other));
            client.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            // Nothing is read at the other end: until no room is left.
            while client.write(&[0; 1 << 16]).is_ok() {}
            group.end();
            passes.join().unwrap();
            drop(service);
        });
        let ((mut client, one), (_service, other)) = (tcp(), tcp());
        group.pass(one, other);
        assert_eq!(
            client.read(&mut [0; 1]).unwrap_or(0),
            0,
            "a group that has ended takes none"
        );
    }
}
