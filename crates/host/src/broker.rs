//! The broker: a small process that keeps root's rights for the few requests that need them after
//! the daemon has given up its own.
//!
//! The daemon starts the broker before it gives up its rights, and before it reads any data from
//! other nodes. The two processes share a stream socket. Requests are of a closed list,
//! [`Request`], and their parameters are numbers and names of networks, each a label of DNS: the
//! daemon sends no path, no command and no other text.
//! The broker gets what it acts on (the interface, the node's own name, the configuration file) at
//! its start. It holds no key, opens no port, and ends with the daemon. docs/decisions/0025-rights.md says why it is a
//! process and what it keeps.
//!
//! To add a request: a variant of [`Request`] with its number and its parameters in `message`, an
//! arm in `server::Broker::carry_out` that checks them and calls into weft-os, and the capability
//! that it needs in `server::give_up_rights`. The fuzz target `broker` and the round trip of
//! `message` then cover it.
//!
//! | module | what it is |
//! |---|---|
//! | `message` | requests and replies as bytes |
//! | `server` | the broker's side |
//! | `client` | the daemon's side |

mod client;
mod message;
mod server;

use std::io;
use std::os::unix::net::UnixStream as StdStream;

use tokio::net::UnixStream;

pub use client::{Alive, Broker, Client};
pub use message::{BadMessage, MAX_LANS, MAX_REPLY, MAX_REQUEST, Reply, Request};
pub use server::{BrokerError, Options, serve};

fn asynchronous(stream: StdStream) -> io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
