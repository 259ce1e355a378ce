//! What the kernel has counted at one moment: CPU time, memory, bytes of interfaces.

use std::io;
use std::path::Path;
use std::time::Instant;

use weft_os::process::{threads_of, usage_of};
use weft_perf::meter::{Meter, Reading};

use super::driver::{EndPoint, Tunnel};
use super::measure::RunError;
use super::stage::Stage;
use crate::host::Host;

/// The kernel's counters at one moment.
pub(super) struct Counts {
    pub(super) at: Instant,
    /// The processes of each client, of the server, and of the relay, the last.
    pub(super) hosts: Vec<Used>,
    /// Bytes that the tunnel interface of each client, and of the server, received and sent.
    pub(super) bytes: Vec<u64>,
    /// CPU seconds of the machine.
    pub(super) machine: MachineCpu,
    /// Packets that cables lost, and those that their queues had no room for.
    pub(super) dropped: [u64; 2],
}

/// What the tunnel's processes of one host have used.
#[derive(Default)]
pub(super) struct Used {
    pub(super) cpu_s: f64,
    pub(super) rss_bytes: u64,
    pub(super) threads: u32,
    pub(super) processes: Vec<Reading>,
}

impl Counts {
    pub(super) fn take(stage: &Stage, tunnel: &Tunnel) -> Result<Self, RunError> {
        let processes = tunnel.ends.iter().map(|end| &end.processes).chain([&tunnel.relay]);
        let bytes = |(host, end): (&Host, &EndPoint)| interface_bytes(host, &end.device);
        Ok(Self {
            at: Instant::now(),
            hosts: processes.map(|pids| used(pids)).collect::<Result<_, _>>()?,
            bytes: stage
                .hosts
                .iter()
                .zip(&tunnel.ends)
                .map(bytes)
                .collect::<Result<_, _>>()?,
            machine: MachineCpu::read()?,
            dropped: stage.dropped(),
        })
    }
}

fn used(pids: &[u32]) -> Result<Used, RunError> {
    let mut sum = Used::default();
    for pid in pids {
        // A process that has ended and was not waited for is still listed, without memory.
        let usage = usage_of(*pid).ok().filter(|usage| usage.rss_bytes > 0);
        let usage = usage.ok_or(RunError::Ended)?;
        sum.cpu_s += usage.cpu.as_secs_f64();
        sum.rss_bytes += usage.rss_bytes;
        sum.threads += threads_of(*pid).map_or(0, |threads| threads.len() as u32);
        sum.processes.push(Meter::new(Some(*pid)).read());
    }
    Ok(sum)
}

/// Bytes that passed an interface of a host, in both directions (`/proc/net/dev`).
fn interface_bytes(host: &Host, device: &str) -> Result<u64, RunError> {
    // Not /proc/self, which is the main thread's namespace.
    let text = host.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
    let bytes = device_bytes(&text, device);
    Ok(bytes.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no interface {device}")))?)
}

fn device_bytes(text: &str, device: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    let fields: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    Some(fields.first()? + fields.get(8)?)
}

/// CPU seconds of the whole machine since it started.
#[derive(Clone, Copy)]
pub(super) struct MachineCpu {
    pub(super) busy: f64,
    pub(super) softirq: f64,
}

impl MachineCpu {
    /// Reads `/proc/stat` (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal.
    fn read() -> io::Result<Self> {
        const TICKS: f64 = 100.0;
        let text = std::fs::read_to_string(Path::new("/proc/stat"))?;
        let fields = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let seconds: Vec<f64> = fields
            .filter_map(|field| field.parse().ok())
            .map(|ticks: f64| ticks / TICKS)
            .collect();
        let [user, nice, system, _, _, irq, softirq, steal, ..] = seconds[..] else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        Ok(Self {
            busy: user + nice + system + irq + softirq + steal,
            softirq,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_an_interface_are_those_both_ways() {
        let text = "Inter-|   Receive |  Transmit\n face |bytes packets\n    lo:       0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n \
                    weft0: 1000 9 0 0 0 0 0 0 234 8 0 0 0 0 0 0\n weft01: 7 7 0 0 0 0 0 0 7 7 0 0 0 0 0 0\n";
        assert_eq!(device_bytes(text, "weft0"), Some(1234));
        assert_eq!(device_bytes(text, "weft01"), Some(14));
        assert_eq!(device_bytes(text, "weft"), None);
    }
}
