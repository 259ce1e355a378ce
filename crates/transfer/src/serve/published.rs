//! Services at the mesh addresses of the node, so that any program of a member reaches them.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::{Place, Serving, connect};
use crate::link;
use crate::pipe::Stream;
use crate::services::Service;

/// The pause after the system refuses to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Where a node is in the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// Its interface; `None` for all, in tests.
    pub interface: Option<String>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// The listeners of a service.
#[derive(Debug, Default)]
pub(super) struct Published {
    listeners: Vec<(SocketAddr, Listener)>,
    failed: Vec<(SocketAddr, io::Error)>,
}

/// A listener, until it is dropped.
#[derive(Debug)]
struct Listener(TcpListener);

impl Drop for Listener {
    fn drop(&mut self) {
        // The accepting thread returns (shutdown(2) of a socket that listens).
        let _ = socket2::SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

impl Published {
    /// The addresses at which it listens.
    pub(super) fn at(&self) -> Vec<SocketAddr> {
        self.listeners.iter().map(|(at, _)| *at).collect()
    }

    /// Why it does not listen at all addresses.
    pub(super) fn why(&self, service: &Service) -> Option<String> {
        let (at, error) = self.failed.first()?;
        let name = &service.name;
        Some(match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another program has TCP port {} at {}; `weft forward` reaches {name} all the same",
                at.port(),
                at.ip()
            ),
            io::ErrorKind::PermissionDenied => format!(
                "only root may listen at TCP port {}; `weft forward` reaches {name} all the same, and --port chooses another one",
                at.port()
            ),
            _ => format!("TCP port {} at {} cannot be used ({error})", at.port(), at.ip()),
        })
    }
}

impl Serving {
    /// Notes where the node is in the mesh, or why it is not there, and listens there.
    pub fn set_mesh(self: &Arc<Self>, mesh: Result<Mesh, String>) {
        let mut inner = self.lock();
        inner.why_not = mesh.as_ref().err().cloned();
        inner.mesh = mesh.ok();
        drop(inner);
        self.publish();
    }

    /// Ends all listeners: those of an interface that is gone hear nothing of its successor.
    pub fn unpublish(&self, why: &str) {
        let mut inner = self.lock();
        (inner.mesh, inner.why_not) = (None, Some(why.to_owned()));
        for (_, published) in &mut inner.services {
            *published = Published::default();
        }
    }

    /// Listens where it should, and nowhere else. What failed before is tried again.
    pub(super) fn publish(self: &Arc<Self>) {
        let mut inner = self.lock();
        let mesh = inner.mesh.clone();
        for (service, published) in &mut inner.services {
            let (addresses, port) = (mesh.iter().flat_map(|mesh| &mesh.addresses), service.port);
            let wanted: Vec<SocketAddr> = match port {
                Some(port) => addresses.map(|address| SocketAddr::new(*address, port)).collect(),
                None => Vec::new(),
            };
            published.listeners.retain(|(at, _)| wanted.contains(at));
            published.failed.clear();
            let interface = mesh.as_ref().and_then(|mesh| mesh.interface.as_deref());
            for at in wanted {
                if published.listeners.iter().any(|(known, _)| *known == at) {
                    continue;
                }
                match self.listen(interface, at, service) {
                    Ok(listener) => published.listeners.push((at, listener)),
                    Err(error) => published.failed.push((at, error)),
                }
            }
        }
    }

    fn listen(self: &Arc<Self>, interface: Option<&str>, at: SocketAddr, service: &Service) -> io::Result<Listener> {
        let listener = link::listen_at(interface, at)?;
        let held = Listener(listener.try_clone()?);
        let (serving, service) = (Arc::clone(self), service.clone());
        thread::Builder::new().spawn(move || serving.accept(&listener, &service))?;
        Ok(held)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener, service: &Service) {
        loop {
            match listener.accept() {
                Ok((stream, from)) => {
                    let from = from.ip().to_canonical();
                    let Some(place) = self.places.take(&service.name, &from.to_string()) else {
                        tracing::debug!(%from, service = service.name, "too many connections; one is closed");
                        continue;
                    };
                    let (serving, service) = (Arc::clone(self), service.clone());
                    let serve = move || serving.serve_direct(stream, from, service, place);
                    if let Err(error) = thread::Builder::new().spawn(serve) {
                        tracing::info!(%error, "a connection has no thread, and is closed");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                Err(error) => {
                    tracing::debug!(%error, "a connection cannot be accepted");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Serves a connection to a mesh address until its end. One of a node that may not use the service is closed.
    fn serve_direct(&self, stream: TcpStream, from: IpAddr, service: Service, mut place: Place) {
        let user = match self.who(from) {
            Ok(Some(user)) if service.is_for(&user) => user,
            refused => {
                tracing::debug!(%from, service = service.name, ?refused, "not for this node");
                return;
            }
        };
        if !place.pass_to(&user.npub) {
            tracing::debug!(
                npub = user.npub,
                service = service.name,
                "too many connections; one is closed"
            );
            return;
        }
        let target = match link::prepare(&stream).and_then(|()| connect(&service.target)) {
            Ok(target) => target,
            Err(error) => {
                tracing::debug!(service = service.name, %error, "the service does not answer");
                return;
            }
        };
        if let Some(session) = self.enter(service, user, None) {
            session.pairs.pass(Stream::Tcp(Arc::new(stream)), target);
            self.leave(&session);
        }
    }
}
