//! `weft perf-serve`: the server of a test. The daemon starts it, with the connection as standard
//! input.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use weft_config::peer::NodeRef;
use weft_os::process::drop_all_privileges;
use weft_perf::limits::Limits;
use weft_perf::server::{self, Server, ServerError};

use super::view::View;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The mesh address of the client
    peer: IpAddr,
    /// The control socket of the daemon
    #[arg(long, value_name = "SOCKET")]
    control: PathBuf,
    /// The interface of the tunnel
    #[arg(long, value_name = "NAME")]
    device: String,
    /// Serve tests outside the tunnel, too
    #[arg(long)]
    raw: bool,
    /// The maximum duration of a test in seconds
    #[arg(long, value_name = "SECS", default_value_t = Limits::default().seconds)]
    max_seconds: u32,
    /// Maximum number of TCP connections in each direction
    #[arg(long, value_name = "N", default_value_t = Limits::default().streams)]
    max_streams: u16,
    /// Maximum rate that is sent, bit/s
    #[arg(long, value_name = "RATE", default_value_t = Limits::default().rate)]
    max_rate: u64,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // It answers other nodes and needs no rights for that.
    drop_all_privileges()?;
    let control = io::stdin().as_fd().try_clone_to_owned();
    let control = TcpStream::from(control.map_err(ServerError::Flow)?);
    let daemon = std::os::unix::process::parent_id();
    let view = match args.peer {
        IpAddr::V6(address) => View::new(args.control.clone(), NodeRef::Address(address.into()), Some(daemon)),
        IpAddr::V4(_) => return Err(Failure::Usage("a mesh address is an IPv6 address".to_owned())),
    };
    match server::serve(Server {
        control,
        device: Some(args.device.clone()),
        view: Box::new(view),
        limits: Limits {
            raw: args.raw,
            seconds: args.max_seconds,
            streams: args.max_streams,
            rate: args.max_rate,
        },
    }) {
        // A failure of the client is not an error of this node.
        Err(
            ServerError::Client(_)
            | ServerError::Refused(_)
            | ServerError::Flows { .. }
            | ServerError::Unanswered
            | ServerError::LinkMoved
            | ServerError::DaemonEnded,
        ) => Err(Failure::Told),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(()),
    }
}
