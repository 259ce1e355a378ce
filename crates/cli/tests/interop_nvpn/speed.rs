//! Throughput of one stream between a weft node and a device, against that between two devices.

use std::net::{IpAddr, Ipv4Addr};

use weft_lab::host::Host;
use weft_lab::traffic::transfer;

use crate::common::MINUTE;
use crate::device::binary;
use crate::network::{Net, address};

const ROUNDS: usize = 5;
const BYTES: u64 = 1_000_000_000;
const PAIRS: [(usize, usize); 4] = [(0, 2), (2, 0), (2, 3), (3, 2)];

/// Mbit/s of one transfer, and seconds of CPU of both daemons: all, and in user space.
struct Sample(f64, [f64; 2], [f64; 2]);

/// Seconds in user space of a process, in steps of 10 ms (proc_pid_stat(5), field 14).
fn user(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_whitespace().nth(11).unwrap().parse::<f64>().unwrap() / 100.0
}

fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

/// Takes some minutes; all four pairs in turn, so that what the machine does besides hits all alike.
#[test]
fn a_stream_to_a_device_is_as_fast_as_between_devices() {
    let Some(program) = binary() else { return };
    let net = Net::start(&program, 3_600);
    let [phone, tablet] = &net.devices;
    // Devices learn each other's addresses.
    phone.dial(&[
        (&net.weft[0].identity().npub, "10.9.0.1:2121"),
        (&tablet.key(), "10.9.0.4:51820"),
    ]);
    net.assert_all_reach();
    let members = net.members();
    let usage = |member: usize| match member {
        2 | 3 => (net.devices[member - 2].usage().cpu, user(net.devices[member - 2].pid())),
        _ => (net.weft[member].usage().unwrap().cpu, user(net.weft[member].pid())),
    };
    let run = |from: usize, to: usize| {
        let before = [from, to].map(usage);
        let hosts: (&Host, &Host) = (members[from].0, members[to].0);
        let to_address: Ipv4Addr = members[to].1;
        let report = transfer(hosts, IpAddr::V4(to_address), BYTES, 7, MINUTE).unwrap();
        assert!(report.hash_ok);
        let after = [from, to].map(usage);
        let spent = [0, 1].map(|end| (after[end].0 - before[end].0).as_secs_f64());
        Sample(report.mbit_s, spent, [0, 1].map(|end| after[end].1 - before[end].1))
    };
    assert_eq!(members[0].1, address(&net.weft[0]));
    let mut samples: [Vec<Sample>; 4] = Default::default();
    for _ in 0..ROUNDS {
        for (pair, of) in PAIRS.iter().zip(&mut samples) {
            of.push(run(pair.0, pair.1));
        }
    }
    let names = ["weft", "weft", "nvpn", "nvpn"];
    let mut medians = Vec::new();
    for ((from, to), of) in PAIRS.iter().zip(&samples) {
        let (speed, least, most) = median(of.iter().map(|sample| sample.0).collect());
        let cpu = [0, 1].map(|end| median(of.iter().map(|sample| sample.1[end]).collect()).0);
        let user = [0, 1].map(|end| median(of.iter().map(|sample| sample.2[end]).collect()).0);
        println!(
            "{} to {}: {speed:.0} Mbit/s ({least:.0} to {most:.0}), CPU {:.2} and {:.2} s a GB, {:.2} and {:.2} of it in user space",
            names[*from], names[*to], cpu[0], cpu[1], user[0], user[1]
        );
        medians.push((speed, cpu));
    }
    let (between, [sends, receives]) = medians[2];
    let (to_device, [weft_sends, _]) = medians[0];
    let (from_device, [_, weft_receives]) = medians[1];
    println!(
        "weft to nvpn {:.2}, nvpn to weft {:.2} of nvpn to nvpn",
        to_device / between,
        from_device / between
    );
    println!(
        "weft's CPU: {:.2} to send, {:.2} to receive of nvpn's between two of its own",
        weft_sends / sends,
        weft_receives / receives
    );
}
