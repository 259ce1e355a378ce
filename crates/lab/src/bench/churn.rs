//! Seconds without payload after a process of a tunnel ends and starts again, or a host roams.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::driver::{Subject, Tunnel};
use super::measure::{Figures, RunError};
use super::media::Stream;
use super::stage::{POLL, Stage};

/// Datagrams that arrive before the event, and after it until the run ends: half a second of them.
const STEADY: u64 = 30;

/// How long a client that rejoins is away.
const ABSENCE: Duration = Duration::from_secs(3);

/// How long payload may stay away.
const LIMIT: Duration = Duration::from_secs(60);

/// An event in the life of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server's process is killed, and starts again at once.
    Restart,
    /// The client's process is killed, and starts again 3 s later; these do not count.
    Rejoin,
    /// The client's host changes its address in the underlay.
    Roam,
}

impl Event {
    /// Time without payload that is part of the event itself.
    const fn absence(self) -> Duration {
        match self {
            Self::Rejoin => ABSENCE,
            Self::Restart | Self::Roam => Duration::ZERO,
        }
    }
}

/// Sends a media stream from the first client to the server, lets the event happen, and measures
/// the longest gap of the stream.
///
/// # Errors
/// [`RunError`]: the run is void.
pub fn measure(stage: &Stage, tunnel: &mut Tunnel, subject: &Subject<'_>, event: Event) -> Result<Figures, RunError> {
    let server = stage.server();
    let address = tunnel.ends.get(server).ok_or(RunError::Nothing)?.address;
    let stream = Stream::open(&stage.hosts[0], &stage.hosts[server], address)??;
    let (stop, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
    let count = || {
        arrived.fetch_add(1, Ordering::Relaxed);
    };
    let (done, arrivals) = std::thread::scope(|scope| {
        let running = scope.spawn(|| stream.run(&stop, &count));
        let done = wait(&arrived, STEADY)
            .and_then(|()| happen(stage, tunnel, subject, event))
            .and_then(|()| wait(&arrived, arrived.load(Ordering::Relaxed) + STEADY));
        stop.store(true, Ordering::Relaxed);
        (done, running.join())
    });
    done?;
    let arrivals = arrivals.map_err(|_| std::io::Error::other("the media stream panicked"))?;
    let gap = arrivals.longest_gap().saturating_sub(event.absence());
    Ok(Figures {
        gap_s: Some(gap.as_secs_f64()),
        media: Some(arrivals.media()),
        mtu: tunnel.mtu,
        ..Figures::default()
    })
}

fn wait(arrived: &AtomicU64, until: u64) -> Result<(), RunError> {
    let end = Instant::now() + LIMIT;
    while arrived.load(Ordering::Relaxed) < until {
        if Instant::now() >= end {
            return Err(RunError::NoReturn(LIMIT));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn happen(stage: &Stage, tunnel: &mut Tunnel, subject: &Subject<'_>, event: Event) -> Result<(), RunError> {
    let host = match event {
        Event::Restart => stage.server(),
        Event::Rejoin => 0,
        Event::Roam => {
            let (_, address, port) = stage.port(0)?;
            let [a, b, net, _] = address.octets();
            port.change_address(&format!("{address}/24"), &format!("{a}.{b}.{net}.77/24"))?;
            return Ok(());
        }
    };
    tunnel.stop(host)?;
    std::thread::sleep(event.absence());
    tunnel.start_again(subject, stage, host)?;
    Ok(())
}
