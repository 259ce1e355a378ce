//! The broker's side.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use weft_noise::PublicKey;
use weft_os::process::{Access, PrivilegeError, Rights, ignore_stop_signals};

use super::asynchronous;
use super::message::{MAX_REQUEST, Reply, Request};
use crate::config::{self, Pending};
use crate::dns::Resolved;
use crate::dns::zone::DOMAIN;

/// Paths of `resolvectl`, in the order in which they are tried. `PATH` is not used, because the
/// environment may be a user's.
const RESOLVECTL: [&str; 3] = [
    "/usr/bin/resolvectl",
    "/bin/resolvectl",
    "/run/current-system/sw/bin/resolvectl",
];

/// The parameters of a broker, set at its start, before its daemon reads any data from other nodes.
#[derive(Debug, Clone)]
pub struct Options {
    /// The index of the daemon's interface.
    pub interface: u32,
    /// The public key of the daemon's node.
    pub key: PublicKey,
    /// The configuration file, absolute, if there is one.
    pub config: Option<PathBuf>,
}

/// The reason why a broker did not start, or ended before its daemon.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Unneeded rights could not be given up.
    #[error("{0}")]
    Privileges(#[from] PrivilegeError),
    /// Standard input is not a socket, or the system has no memory left.
    #[error("the broker is started by `weft up` alone ({0})")]
    Socket(#[from] io::Error),
}

/// Serves the daemon at standard input until the daemon ends. Standard output is a socket that
/// closes when the daemon ends.
///
/// Must be called while the process has one thread.
///
/// # Errors
/// [`BrokerError`]
pub fn serve(options: Options) -> Result<(), BrokerError> {
    // A terminal and a service manager signal the whole process group; the broker runs until its
    // daemon has ended.
    ignore_stop_signals()?;
    give_up_rights(options.config.as_deref())?;
    let requests = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let life = StdStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut requests, mut life) = (asynchronous(requests)?, asynchronous(life)?);
        let broker = Broker { options };
        tokio::select! {
            ended = broker.answer_all(&mut requests) => ended,
            // The daemon never sends anything on this stream, so any result of the read means the
            // end.
            _ = life.read_u8() => Ok(()),
        }
    })?;
    Ok(())
}

/// Keeps the rights that the requests on the list need: uid 0, by which the system's services
/// recognise the caller and which owns the configuration. Files can be read and programs run. Only
/// files beside the configuration can be written.
fn give_up_rights(config: Option<&Path>) -> Result<(), PrivilegeError> {
    let mut files = vec![(Path::new("/"), Access::Run)];
    files.extend(config.and_then(Path::parent).map(|directory| (directory, Access::Keep)));
    let rights = Rights {
        files: Some(&files),
        filter: true,
        ..Rights::default()
    };
    rights.confine().map(drop)
}

struct Broker {
    options: Options,
}

impl Broker {
    /// Answers requests one after the other, until the stream ends.
    async fn answer_all(&self, stream: &mut UnixStream) -> io::Result<()> {
        let mut message = [0; MAX_REQUEST];
        loop {
            let len = match stream.read_u32().await {
                Ok(len) => len as usize,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            };
            // The length is invalid, so the start of the next message is unknown.
            let message = message.get_mut(..len).ok_or(io::ErrorKind::InvalidData)?;
            stream.read_exact(message).await?;
            let reply = match Request::decode(message) {
                Ok(request) => self.carry_out(&request).await,
                Err(_) => Reply::Refused,
            };
            stream.write_all(&reply.encode()).await?;
        }
    }

    async fn carry_out(&self, request: &Request) -> Reply {
        match request {
            Request::SetResolver { port } => {
                let Options { interface, key, .. } = &self.options;
                let server = SocketAddr::new(IpAddr::V6(key.node_addr().to_ipv6()), port.get());
                let installed = RESOLVECTL.into_iter().find(|path| Path::new(path).exists());
                let Some(resolvectl) = installed else {
                    return Reply::Failed("resolvectl is not installed".to_owned());
                };
                let resolved = Resolved::new(resolvectl, *interface);
                match resolved.register(server, &format!("{key}.{DOMAIN}")).await {
                    Ok(()) => Reply::Done,
                    Err(error) => Reply::Failed(error.to_string()),
                }
            }
            Request::ReadConfig => self.with_config(|path| config::read_text(path).map(Reply::Text)),
            Request::RestoreConfig => self.with_config(|path| Pending::restore(path).map(|()| Reply::Done)),
            Request::ConfirmConfig => self.with_config(|path| Pending::confirm(path).map(|()| Reply::Done)),
        }
    }

    fn with_config(&self, carry_out: impl FnOnce(&Path) -> Result<Reply, config::ConfigError>) -> Reply {
        match &self.options.config {
            Some(path) => carry_out(path).unwrap_or_else(|error| Reply::Failed(error.to_string())),
            None => Reply::Failed("the daemon has no configuration file".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker() -> Broker {
        let key = weft_noise::SecretKey::from_bytes(&[7; 32]).unwrap().public();
        Broker {
            options: Options {
                interface: 1,
                key,
                config: None,
            },
        }
    }

    fn exchange(sent: &[u8]) -> (io::Result<()>, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            ours.write_all(sent).await.unwrap();
            ours.shutdown().await.unwrap();
            let broker = broker();
            let ended = broker.answer_all(&mut theirs).await;
            drop(theirs);
            let mut replies = Vec::new();
            // A stream that is closed with unread bytes in it is reset.
            let _ = ours.read_to_end(&mut replies).await;
            (ended, replies)
        })
    }

    #[test]
    fn an_unknown_request_is_refused_and_the_next_one_read() {
        let refused = Reply::Refused.encode();
        let (ended, replies) = exchange(&[0, 0, 0, 2, 2, 99, 0, 0, 0, 4, 2, 1, 0, 0]);
        assert!(ended.is_ok());
        assert_eq!(replies, [refused.clone(), refused].concat());
    }

    #[test]
    fn a_request_that_is_too_long_ends_the_broker() {
        let (ended, replies) = exchange(&[0xff; 600]);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(replies.is_empty());
    }

    #[test]
    fn it_ends_with_its_daemon() {
        assert!(exchange(&[]).0.is_ok());
        assert!(exchange(&[0]).0.is_ok(), "in the middle of a message, too");
    }
}
