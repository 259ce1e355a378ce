//! `weft wait`: until a peer is connected.

use std::thread::sleep;
use std::time::{Duration, Instant};

use weft_config::peer::PeerRef;
use weft_control::status::{Peers, Pong, PublicPeers, Standing};
use weft_control::{ControlCommand, ControlError, ErrorCode, Visible};
use weft_store::state::StatePaths;

use crate::configure;
use crate::failure::Failure;
use crate::human;

/// The pause between two looks. Other users than owners have ten requests a second.
const STEP: Duration = Duration::from_millis(300);
/// Time limit of one echo.
const ECHO: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The peer: its npub, name, NAME.fips, NAME.NETWORK.weft or fd00 address
    peer: PeerRef,
    /// Wait until an echo comes back from it
    #[arg(long)]
    payload: bool,
    /// How long, as 30s or 5m; then the exit status is 4
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = configure::time)]
    timeout: Duration,
}

pub(crate) fn run(paths: &StatePaths, args: &Args) -> Result<(), Failure> {
    let end = Instant::now() + args.timeout;
    loop {
        let missing = match look(paths, args, end) {
            Ok(None) => return Ok(()),
            Ok(Some(missing)) => missing,
            Err(error) if can_change(&error) => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Waited {
                seconds: args.timeout.as_secs(),
                missing: human::plain(&missing),
            });
        }
        sleep(STEP.min(left));
    }
}

/// What is missing; `None` if nothing is.
fn look(paths: &StatePaths, args: &Args, end: Instant) -> Result<Option<String>, ControlError> {
    let mut missing = None;
    if !args.payload {
        missing = standing(paths, &args.peer)?;
        if missing.is_none() {
            return Ok(None);
        }
    }
    // A peer behind others has no session until something is sent to it.
    let left = end.saturating_duration_since(Instant::now());
    let limit = ECHO.min(left).max(Duration::from_millis(1));
    let command = ControlCommand::Ping {
        peer: args.peer.clone(),
        timeout_ms: limit.as_millis() as u32,
    };
    let pong: Pong = weft_control::call(&paths.control(), &command)?;
    if pong.rtt_ms.is_some() {
        return Ok(None);
    }
    Ok(missing.or_else(|| {
        let why = pong.why.map(|why| format!(": {why}"));
        Some(format!(
            "no echo came back from {}{}",
            args.peer,
            why.unwrap_or_default()
        ))
    }))
}

/// What keeps the peer from being connected; `None` if it is.
fn standing(paths: &StatePaths, peer: &PeerRef) -> Result<Option<String>, ControlError> {
    let command = ControlCommand::Peers {
        peer: Some(peer.clone()),
    };
    let found = match weft_control::call_visible(&paths.control(), &command)? {
        Visible::Full::<Peers, PublicPeers>(peers) => peers.peers.into_iter().next().map(|one| (one.standing, one.why)),
        Visible::Public(peers) => peers.peers.into_iter().next().map(|one| (one.standing, String::new())),
    };
    Ok(match found {
        Some((Standing::Connected | Standing::Active, _)) => None,
        Some((standing, why)) if why.is_empty() => Some(format!("{peer} is {}", standing.name())),
        Some((standing, why)) => Some(format!("{peer} is {}: {why}", standing.name())),
        None => Some(format!("{peer} is not listed")),
    })
}

/// Whether the reason can pass while the command waits: the daemon starts, the peer becomes a member.
fn can_change(error: &ControlError) -> bool {
    match error {
        ControlError::NotRunning(_) | ControlError::Stopped(_) | ControlError::Timeout(_) => true,
        ControlError::Refused(refusal) => matches!(
            refusal.code,
            ErrorCode::UnknownPeer | ErrorCode::Busy | ErrorCode::TooOften | ErrorCode::Unavailable
        ),
        _ => false,
    }
}
