//! `weft wait`: until a peer is connected.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use weft_config::peer::NodeRef;
use weft_control::status::{EventKind, Peers, Pong, PublicPeers, Standing};
use weft_control::{ControlCommand, ControlError, ErrorCode, Visible};
use weft_store::state::StatePaths;

use crate::configure;
use crate::documents::OfCommand;
use crate::failure::Failure;
use crate::feed::{Feed, kind};
use crate::human;
use crate::interrupt::{Interrupt, Next};
use crate::output::Out;

/// The pause between two looks without events. Other users than owners have ten requests a second.
const STEP: Duration = Duration::from_millis(300);
/// The pause between two looks with events. The echo of a look has no event: a peer behind others gets a session by it.
const ECHO_AGAIN: Duration = Duration::from_secs(1);
/// Time limit of one echo.
const ECHO: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The peer: its name, NAME.fips, NAME.NETWORK.weft, npub or address
    #[arg(value_parser = NodeRef::of_node)]
    peer: NodeRef,
    /// Wait until an echo comes back from it
    #[arg(long)]
    payload: bool,
    /// How long, as 30s or 5m; then the exit status is 4
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = configure::time)]
    timeout: Duration,
    /// Print the document weft.wait/1
    #[arg(long)]
    json: bool,
}

/// A peer that is connected.
#[derive(Serialize, JsonSchema)]
struct Found {
    /// The public key of the peer.
    npub: String,
    /// Its name on this node.
    name: Option<String>,
    /// Its IPv6 address in the mesh.
    address: Ipv6Addr,
    /// The round trip of the echo in milliseconds, if one came back.
    rtt_ms: Option<f64>,
}

/// The document of `weft wait`, once the peer is connected.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Waited<'a> {
    #[serde(flatten)]
    found: &'a Found,
    /// How long the command waited, in milliseconds.
    waited_ms: u64,
}

impl OfCommand for Waited<'_> {
    const NAME: &'static str = "weft.wait/1";
}

pub(crate) fn run(paths: &StatePaths, args: &Args) -> Result<(), Failure> {
    let begun = Instant::now();
    let end = begun + args.timeout;
    let mut changes = Changes::of(args)?;
    loop {
        let found = changes.subscribe(paths).and_then(|()| look(paths, args, end));
        let missing = match found {
            Ok(Ok(found)) => return report(args, &found, begun.elapsed()),
            Ok(Err(missing)) => missing,
            Err(error) if can_change(&error) => {
                changes.note(&error);
                error.to_string()
            }
            Err(error) => return Err(error.into()),
        };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Waited {
                seconds: args.timeout.as_secs(),
                missing: human::plain(&missing),
            });
        }
        changes.wait(left);
    }
}

/// What may make another look worthwhile.
struct Changes {
    /// Signals end the command as they end any other.
    waits: Interrupt,
    feed: Option<Feed>,
    /// Whether the daemon is to be asked for events before the next look.
    asks: bool,
}

impl Changes {
    /// An echo that comes back has no event: whether one does is asked again and again.
    fn of(args: &Args) -> Result<Self, Failure> {
        Ok(Self {
            waits: Interrupt::catch_none()?,
            feed: None,
            asks: !args.payload,
        })
    }

    /// Asks for events, before a look: what changes after that is then not missed. A daemon that refuses is asked
    /// once.
    ///
    /// # Errors
    /// The daemon does not answer in time. A look would wait for as long again.
    fn subscribe(&mut self, paths: &StatePaths) -> Result<(), ControlError> {
        if self.feed.is_none() && std::mem::take(&mut self.asks) {
            match Feed::open(&paths.control()) {
                Ok((feed, _)) => self.feed = Some(feed),
                Err(error @ ControlError::Timeout(_)) => return Err(error),
                Err(error) => self.asks = matches!(error, ControlError::NotRunning(_)),
            }
        }
        Ok(())
    }

    /// Notes why a look failed. Where all connections of this user are in use, that for events goes.
    fn note(&mut self, error: &ControlError) {
        if matches!(error, ControlError::Refused(refusal) if refusal.code == ErrorCode::Busy) {
            self.feed = None;
        }
        if matches!(error, ControlError::NotRunning(_) | ControlError::Stopped(_)) {
            self.asks |= self.feed.take().is_some();
        }
    }

    /// Waits until a look may find something else, for `left` at most.
    fn wait(&mut self, left: Duration) {
        let Some(feed) = &mut self.feed else {
            self.waits.pause(STEP.min(left));
            return;
        };
        let end = Instant::now() + ECHO_AGAIN.min(left);
        loop {
            let step = end.saturating_duration_since(Instant::now());
            match self.waits.next(feed, Some(step)) {
                Next::Event(Ok(event)) if !is_about_arrivals(&event) => {}
                Next::Event(Ok(_)) => return feed.skip(),
                Next::Time | Next::Interrupted => return,
                Next::Event(Err(_)) | Next::Ended => {
                    // A daemon that restarts is asked again.
                    (self.feed, self.asks) = (None, true);
                    self.waits.pause(STEP.min(left));
                    return;
                }
            }
        }
    }
}

/// Whether a peer may be known or connected since an event. Its name in the event need not be that of the command.
fn is_about_arrivals(event: &Value) -> bool {
    matches!(
        kind(event),
        Some(EventKind::PeerUp | EventKind::MemberAdded | EventKind::Networks)
    )
}

fn report(args: &Args, found: &Found, waited: Duration) -> Result<(), Failure> {
    if !args.json {
        return Ok(());
    }
    Out::new().document(&Waited {
        found,
        waited_ms: waited.as_millis() as u64,
    })
}

/// The peer, or what is missing.
fn look(paths: &StatePaths, args: &Args, end: Instant) -> Result<Result<Found, String>, ControlError> {
    let mut missing = None;
    if !args.payload {
        match standing(paths, &args.peer)? {
            Ok(found) => return Ok(Ok(found)),
            Err(why) => missing = Some(why),
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
        return Ok(Ok(Found {
            npub: pong.npub,
            name: pong.name,
            address: pong.address,
            rtt_ms: pong.rtt_ms,
        }));
    }
    Ok(Err(missing.unwrap_or_else(|| {
        let why = pong.why.map(|why| format!(": {why}"));
        format!("no echo came back from {}{}", args.peer, why.unwrap_or_default())
    })))
}

/// The peer if it is connected, or what keeps it from being so.
fn standing(paths: &StatePaths, peer: &NodeRef) -> Result<Result<Found, String>, ControlError> {
    let command = ControlCommand::Peers {
        peer: Some(peer.clone()),
    };
    let found = |npub, name, address| Found {
        npub,
        name,
        address,
        rtt_ms: None,
    };
    let listed = match weft_control::call_visible(&paths.control(), &command)? {
        Visible::Full::<Peers, PublicPeers>(peers) => {
            let first = peers.peers.into_iter().next();
            first.map(|one| (found(one.npub, one.name, one.address), one.standing, one.why))
        }
        Visible::Public(peers) => {
            let first = peers.peers.into_iter().next();
            first.map(|one| (found(one.npub, one.name, one.address), one.standing, String::new()))
        }
    };
    Ok(match listed {
        Some((found, Standing::Connected | Standing::Active, _)) => Ok(found),
        Some((_, standing, why)) if why.is_empty() => Err(format!("{peer} is {}", standing.name())),
        Some((_, standing, why)) => Err(format!("{peer} is {}: {why}", standing.name())),
        None => Err(format!("{peer} is not listed")),
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
