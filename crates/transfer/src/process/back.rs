//! Connections the other way: where a firewall of the receiving end lets none in, that end connects to the sending one.

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use weft_control::TransferPurpose;

use super::Process;
use super::fetched::Fetcher;
use super::grants::{Bulk, Grant};
use crate::link::{Far, Opened};
use crate::live::{Failure, Live};
use crate::wire::Connection;

/// How long a grant waits for its first connection until this end connects.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the sending end waits for a connection of its own, or of the other end.
const AWAITED: Duration = Duration::from_secs(12);
/// How late a connection of the other end may come.
const SLACK: Duration = Duration::from_secs(2);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A control connection, and the other end of it. Connections that the other end has opened last until `awaited` ends.
pub(super) struct Connected {
    pub(super) control: Arc<TcpStream>,
    pub(super) far: Arc<dyn Far + Send>,
    pub(super) awaited: Arc<Fetcher>,
}

impl Process {
    /// Connects to a peer to which files go, or takes the connection that it opens.
    pub(super) fn connect(&self, agreed: Opened, live: &Arc<Live>) -> Result<Connected, Failure> {
        let awaited = Arc::new(Fetcher::new(&agreed.npub, &agreed.name, live));
        let bulk: Arc<dyn Bulk> = Arc::<Fetcher>::clone(&awaited);
        self.grants.begin(agreed.token, agreed.address(), bulk);
        let (tell, dialed) = mpsc::channel();
        let own = agreed.clone();
        let started = thread::Builder::new().spawn(move || {
            // The other end may have connected meanwhile.
            let _ = tell.send(own.connect(Connection::Control));
        });
        started.map_err(|error| Failure::Retry(format!("no thread for a connection ({error})")))?;
        let mut end = Instant::now() + AWAITED;
        let mut failure = None;
        loop {
            if let Some(control) = awaited.control() {
                let far = Arc::<Fetcher>::clone(&awaited);
                return Ok(Connected { control, far, awaited });
            }
            match dialed.recv_timeout(LOOK) {
                Ok(Ok(control)) => {
                    self.grants.end(&agreed.token);
                    let far = Arc::new(agreed);
                    return Ok(Connected { control, far, awaited });
                }
                Ok(Err(error)) => {
                    // A refusal comes at once; the other end connects a few seconds after its grant.
                    end = end.min(Instant::now() + PATIENCE + SLACK);
                    failure = Some(error);
                }
                // It has told already.
                Err(mpsc::RecvTimeoutError::Disconnected) => thread::sleep(LOOK),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if live.stop().is_set() || Instant::now() >= end {
                self.grants.end(&agreed.token);
                awaited.end();
                return Err(failure.unwrap_or_else(|| Failure::Retry(format!("{} does not answer", agreed.name))));
            }
        }
    }

    /// Connects to a peer that sends files and does not come, if its connections are not let in.
    pub(super) fn call_back(self: &Arc<Self>, grant: &Grant, opened: Opened) {
        if grant.purpose != TransferPurpose::Send {
            return;
        }
        let (process, grant) = (Arc::clone(self), grant.clone());
        let waits = move || {
            let end = Instant::now() + PATIENCE;
            while Instant::now() < end {
                if process.is_stopping() || !process.grants.is_unused(&opened.token) {
                    return;
                }
                thread::sleep(LOOK);
            }
            match opened.connect(Connection::Control) {
                // Its own connection may have come meanwhile.
                Ok(stream) if process.grants.take(&opened.token, grant.address).is_some() => {
                    process.take_offer(&stream, opened.token, &grant, Some(&opened));
                    process.grants.end(&opened.token);
                }
                Ok(_) => {}
                Err(failure) => {
                    tracing::debug!(peer = grant.name, why = failure.words(), "no connection the other way");
                }
            }
        };
        if let Err(error) = thread::Builder::new().spawn(waits) {
            tracing::debug!(%error, "no thread for a connection the other way");
        }
    }
}

impl Opened {
    /// The other way of a grant: from here to the process that asked.
    pub(super) fn back(grant: &Grant, token: [u8; 16], port: u16, place: (std::net::Ipv6Addr, String)) -> Self {
        let (own, interface) = place;
        Self {
            token,
            npub: grant.npub.clone(),
            name: grant.name.clone(),
            peer: SocketAddr::new(grant.address.into(), port),
            own,
            interface,
        }
    }
}
