//! The signals that stop the daemon in an orderly way.

use std::future::pending;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Returns true if the program was started to outlive its terminal, as with `nohup`. Must be called
/// before the process is confined.
pub(super) fn outlives_terminal() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
}

/// Reads bit 0 of `SigIgn`, which is SIGHUP (proc(5)).
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// SIGTERM, SIGINT and SIGQUIT, and SIGHUP unless it is ignored: a terminal that closes stops its
/// daemon as Ctrl-C does.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Option<Signal>,
}

impl StopSignals {
    pub(super) fn new(outlives_terminal: bool) -> std::io::Result<Self> {
        let hangup = (!outlives_terminal).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: hangup.transpose()?,
        })
    }

    pub(super) async fn received(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.quit.recv() => {}
            () = hangup => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_under_nohup_ignores_hangups() {
        assert!(ignores_hangup("Name:\tweft\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("Name:\tweft\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup("Name:\tweft\n"));
    }
}
