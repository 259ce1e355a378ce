//! Where programs of this machine find the service of a peer.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::link;
use crate::pipe::Stream;
use crate::services::Local;

/// The connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// The pause after the system refuses to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Takes a connection of a program.
type Take = dyn Fn(Stream) + Send + Sync;

/// All listeners of a forward. A drop ends them, and removes the socket.
#[derive(Debug)]
pub(super) struct Listeners {
    all: Vec<Arc<Listener>>,
    /// The socket, with its device and inode.
    file: Option<(PathBuf, (u64, u64))>,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listeners {
    /// Listens at a port of the loopback or at a path, and gives connections to `take`.
    ///
    /// # Errors
    /// Why that is not possible, for the user.
    pub(super) fn open(local: &Local, take: &Arc<impl Fn(Stream) + Send + Sync + 'static>) -> Result<Self, String> {
        let mut all = Self {
            all: Vec::new(),
            file: None,
        };
        match local {
            Local::Port(port) => {
                for ip in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
                    let at = SocketAddr::new(ip, *port);
                    match link::listen_at(None, at) {
                        Ok(listener) => all.all.push(Arc::new(Listener::Tcp(listener))),
                        // A host without IPv6.
                        Err(_) if at.is_ipv6() && !has_ipv6() => {}
                        Err(error) => return Err(port_refused(at, &error)),
                    }
                }
            }
            Local::Unix(path) => {
                let path = PathBuf::from(path);
                let failed = |error: io::Error| format!("{} cannot be listened at ({error})", path.display());
                let listener = bind(&path).map_err(failed)?;
                let found = fs::symlink_metadata(&path).map_err(failed)?;
                all.all.push(Arc::new(Listener::Unix(listener)));
                all.file = Some((path, (found.dev(), found.ino())));
            }
        }
        for listener in &all.all {
            let (listener, take) = (Arc::clone(listener), Arc::clone(take));
            let spawned = thread::Builder::new().spawn(move || listener.accept(&*take));
            spawned.map_err(|error| format!("no thread for it ({error})"))?;
        }
        Ok(all)
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        for listener in &self.all {
            // The accepting thread returns (shutdown(2) of a socket that listens).
            let _ = match &**listener {
                Listener::Tcp(listener) => SockRef::from(listener).shutdown(Shutdown::Both),
                Listener::Unix(listener) => SockRef::from(listener).shutdown(Shutdown::Both),
            };
        }
        if let Some((path, identity)) = &self.file
            && fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == *identity)
        {
            let _ = fs::remove_file(path);
        }
    }
}

impl Listener {
    fn accept(&self, take: &Take) {
        loop {
            let accepted = match self {
                Self::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(Arc::new(stream))),
                Self::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
            };
            match accepted {
                Ok(stream) => take(stream),
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                Err(error) => {
                    tracing::debug!(%error, "a connection cannot be accepted");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }
}

fn has_ipv6() -> bool {
    link::listen_at(None, SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0)).is_ok()
}

fn port_refused(at: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another program has TCP port {} at {}; choose another one",
            at.port(),
            at.ip()
        ),
        io::ErrorKind::PermissionDenied => {
            format!(
                "only root may listen at TCP port {}; choose one from 1024 on",
                at.port()
            )
        }
        _ => format!("TCP port {} at {} cannot be used ({error})", at.port(), at.ip()),
    }
}

/// Listens at a path, with mode 0600. A socket at which no process listens any more is replaced.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The file gets the mode of the socket, so that no other user finds it open.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    let address = SockAddr::unix(path)?;
    match socket.bind(&address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
            fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        bound => bound?,
    }
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn is_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let connected = || -> io::Result<()> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // A listener whose queue is full does not hold it up (connect(2)).
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && connected().err().is_some_and(refused)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    use super::*;
    use crate::api::RawPath;

    fn take() -> (Arc<impl Fn(Stream) + Send + Sync + 'static>, mpsc::Receiver<Stream>) {
        let (sender, receiver) = mpsc::channel();
        (Arc::new(move |stream| drop(sender.send(stream))), receiver)
    }

    #[test]
    fn a_socket_is_private_and_replaces_one_without_a_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let local = Local::Unix(RawPath::from(&*path));
        drop(UnixListener::bind(&path).unwrap());
        let (take, taken) = take();
        let listeners = Listeners::open(&local, &take).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let _one = UnixStream::connect(&path).unwrap();
        taken.recv().unwrap();
        let error = Listeners::open(&local, &take).unwrap_err();
        assert!(error.contains("cannot be listened at"), "{error}");
        drop(listeners);
        assert!(!path.exists());
        fs::write(&path, "x").unwrap();
        assert!(Listeners::open(&local, &take).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"x", "a file is not replaced");
    }

    #[test]
    fn a_listener_that_is_busy_holds_nothing_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let busy = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        busy.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        busy.listen(0).unwrap();
        let connect = || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket.connect(&SockAddr::unix(&path).unwrap()).map(|()| socket)
        };
        let waiting: Vec<Socket> = std::iter::from_fn(|| connect().ok()).collect();
        assert!(!waiting.is_empty());
        let (tell, told) = mpsc::channel();
        let local = Local::Unix(RawPath::from(&*path));
        thread::spawn(move || tell.send(Listeners::open(&local, &take().0).is_err()));
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true));
        assert!(path.exists(), "it is not replaced");
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = Listeners::open(&Local::Port(port), &take().0).unwrap_err();
        assert!(
            error.contains(&format!("another program has TCP port {port}")),
            "{error}"
        );
    }
}
