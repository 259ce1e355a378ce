//! The broker: a small process that keeps root's rights for the few things that a daemon needs of them after it has given
//! up its own.
//!
//! The daemon starts it before that, and before it reads anything of others. The two share a stream socket; requests are
//! of a closed list, [`Request`], whose parameters are numbers: no path, no command and no text comes from the daemon. What
//! the broker acts on (the interface, our own name) it is told at its start. It holds no key, opens no port, and ends with
//! the daemon. docs/decisions/0025-rights.md says why it is a process and what it keeps.
//!
//! To add a request: a variant of [`Request`] with its number and its parameters in `message`, an arm in
//! `server::Broker::carry_out` that checks them and calls into weft-os, and the capability that it takes in
//! `server::give_up_rights`. The fuzz target and the round trip of `message` then cover it.
//!
//! | module | what it is |
//! |---|---|
//! | `message` | requests and replies as bytes |
//! | `server` | the broker's side |
//! | `client` | the daemon's side |

mod client;
#[doc(hidden)]
pub mod fuzz;
mod message;
mod server;

use std::io;
use std::os::unix::net::UnixStream as StdStream;

use tokio::net::UnixStream;

pub use client::{Alive, Broker, Client};
pub use message::{BadMessage, MAX_MESSAGE, Reply, Request};
pub use server::{BrokerError, Options, serve};

fn asynchronous(stream: StdStream) -> io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
