//! Transfers of files through a tunnel, beside TCP alone, a null transfer, rsync over ssh and `cp -a`, in alternating
//! rounds, with the CPU time of the whole machine.
//!
//! `cargo run --release -p weft-lab --example transfers -- WEFT CASE [ROUNDS] [SIZE] [FOLDER] [CONGESTION_CONTROL]`
//!
//! | case | what goes through the tunnel | SIZE |
//! |---|---|---|
//! | `cpu` | one file, over a plain cable: processors are the limit | MB, 1024 |
//! | `gbit` | one file, over a cable of 1 Gbit/s | MB, 1024 |
//! | `small` | a folder of files of 4 KiB | files, 100000 |
//! | `lan`, `wan`, `lossy` | one file by one, two, four and eight connections, and by four streams in one; datagrams as of QUIC | MB, 1024, 256, 48 |
//!
//! `wan` has a round trip of 26 ms and 500 Mbit/s, `lossy` loses 0.1 % in each direction beside that. FOLDER holds the
//! files of both ends; a folder in memory leaves the disk out. TCP uses CUBIC unless told otherwise.
//!
//! It needs root, and sshd and rsync for one arm; arms without their program are left out.

#![allow(clippy::print_stdout, reason = "a program for a person")]

mod files;
mod loads;
mod mesh;
mod ssh;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weft_lab::emulator::Impairments;
use weft_lab::stats::{Summary, paired_ratio};
use weft_lab::world::World;

use self::loads::Null;
use self::mesh::Mesh;
use self::ssh::Ssh;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The limit of one run.
const LIMIT: Duration = Duration::from_secs(900);
/// Units of `/proc/stat` in a second (USER_HZ of every Linux).
const TICKS: f64 = 100.0;

/// A subject of the comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arm {
    /// A TCP stream from memory to nowhere.
    Tcp,
    /// Read, BLAKE3, send; receive, BLAKE3, write.
    Null(Null),
    Weft,
    Rsync,
    /// `cp -a` and a sync, outside of the tunnel.
    Cp,
    /// Datagrams as QUIC sends them, without its cryptography, streams and repetition, for a while.
    Quic,
}

impl Arm {
    fn name(self) -> String {
        match self {
            Self::Tcp => "one TCP stream".to_owned(),
            Self::Null(Null { workers: 1, .. }) => "null, one connection".to_owned(),
            Self::Null(Null { workers, shared: false }) => format!("null, {workers} connections"),
            Self::Null(Null { workers, shared: true }) => format!("null, {workers} streams in one"),
            Self::Weft => "weft send".to_owned(),
            Self::Rsync => "rsync over ssh".to_owned(),
            Self::Cp => "cp -a and sync".to_owned(),
            Self::Quic => "datagrams as of QUIC".to_owned(),
        }
    }
}

/// What is measured.
struct Case {
    arms: Vec<Arm>,
    cable: Option<Impairments>,
    /// Files of 4 KiB; none for one large file.
    files: Option<u64>,
    /// Bytes in all.
    bytes: u64,
}

impl Case {
    fn parse(name: &str, size: Option<u64>) -> Result<Self> {
        let own = |workers| Arm::Null(Null { workers, shared: false });
        let shared = Arm::Null(Null {
            workers: 4,
            shared: true,
        });
        let slow = |mbit: u64, delay, loss| Impairments {
            rate: Some(mbit * 1_000_000),
            queue: 1 << 20,
            loss,
            ..Impairments::delay(Duration::from_millis(delay))
        };
        let connections = vec![Arm::Tcp, own(1), own(2), own(4), own(8), shared, Arm::Weft, Arm::Quic];
        let (arms, cable, default) = match name {
            "cpu" => (vec![own(2), Arm::Weft, Arm::Tcp, Arm::Rsync], None, 1024),
            "gbit" => (
                vec![Arm::Tcp, Arm::Weft, own(2), Arm::Rsync],
                Some(slow(1000, 0, 0.0)),
                1024,
            ),
            "small" => (vec![Arm::Cp, Arm::Weft, Arm::Rsync], None, 100_000),
            "lan" => (connections, None, 1024),
            "wan" => (connections, Some(slow(500, 13, 0.0)), 256),
            "lossy" => (connections, Some(slow(500, 13, 0.001)), 48),
            other => return Err(format!("no case is called {other:?}").into()),
        };
        let size = size.unwrap_or(default);
        let files = (name == "small").then_some(size);
        let bytes = files.map_or(size << 20, |files| files * files::SMALL);
        Ok(Self {
            arms,
            cable,
            files,
            bytes,
        })
    }
}

/// One run.
struct Run {
    seconds: f64,
    /// Busy seconds of all processors, the lab's included.
    cpu: f64,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let weft = PathBuf::from(arguments.next().ok_or("name the weft binary")?);
    let name = arguments.next().ok_or("name a case")?;
    let rounds: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let size = arguments.next().map(|text| text.parse()).transpose()?;
    let folder = arguments
        .next()
        .map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let congestion = arguments.next().unwrap_or_else(|| "cubic".to_owned());
    let case = Case::parse(&name, size)?;

    World::enter()?;
    let world = World::new()?;
    let work = tempfile::Builder::new().prefix("weft-transfers-").tempdir_in(folder)?;
    let from = work.path().join("from");
    files::create(&from, case.files, case.bytes)?;
    let mesh = Mesh::start(&world, &weft, case.cable, &congestion, &work.path().join("to"))?;
    let ssh = match case.arms.contains(&Arm::Rsync) {
        true => Ssh::start(&mesh, work.path())
            .inspect_err(|error| println!("without rsync: {error}"))
            .ok(),
        false => None,
    };
    let arms = case.arms.iter().filter(|arm| ssh.is_some() || **arm != Arm::Rsync);
    let mut all: Vec<(Arm, Vec<Run>)> = arms.map(|arm| (*arm, Vec::new())).collect();
    for round in 0..rounds {
        let count = all.len();
        for n in 0..count {
            let place = if round % 2 == 0 { n } else { count - 1 - n };
            let (arm, runs) = all.get_mut(place).ok_or("no such arm")?;
            let into = format!("{}", round * count + n);
            let run = measure(*arm, &mesh, ssh.as_ref(), &case, &from, &into)?;
            println!(
                "round {}  {:<24} {:7.3} s  CPU {:7.3} s",
                round + 1,
                arm.name(),
                run.seconds,
                run.cpu
            );
            runs.push(run);
        }
    }
    report(&case, &all)?;
    println!("memory: {}", mesh.memory()?);
    Ok(())
}

/// Runs an arm once, and compares what it wrote. Small files stay until the end: file systems such as ext4 search long for
/// inodes while many were freed lately.
fn measure(arm: Arm, mesh: &Mesh, ssh: Option<&Ssh>, case: &Case, from: &Path, into: &str) -> Result<Run> {
    let to = &mesh.folder().join(into);
    fs::create_dir_all(to)?;
    // What an earlier arm left to write is not this one's.
    rustix::fs::sync();
    let (begun, busy) = (Instant::now(), busy_s()?);
    let mut share = 1.0;
    match arm {
        Arm::Tcp => loads::tcp(mesh, case.bytes)?,
        Arm::Null(null) => null.run(mesh, &from.join(files::LARGE), &to.join(files::LARGE))?,
        Arm::Weft => mesh.send(from, into)?,
        Arm::Rsync => ssh.ok_or("no sshd")?.rsync(mesh, from, to)?,
        Arm::Cp => files::copy(from, to)?,
        // What it would have taken for all bytes.
        Arm::Quic => share = case.bytes as f64 / mesh.quic()?,
    }
    let run = Run {
        seconds: begun.elapsed().as_secs_f64() * share,
        cpu: (busy_s()? - busy) * share,
    };
    match arm {
        Arm::Tcp | Arm::Quic => {}
        Arm::Null(_) => files::compare(&from.join(files::LARGE), &to.join(files::LARGE))?,
        Arm::Weft | Arm::Rsync | Arm::Cp => files::compare(from, &to.join("from"))?,
    }
    if case.files.is_none() {
        fs::remove_dir_all(to)?;
    }
    Ok(run)
}

/// The seconds that all processors were busy since the start.
fn busy_s() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let mut all = stat.lines().next().unwrap_or("").split_whitespace().skip(1);
    // user, nice, system, idle, iowait, irq, softirq (proc_stat(5)).
    let mut next = || all.next().unwrap_or("0").parse::<f64>();
    let (busy, _idle, _wait) = (next()? + next()? + next()?, next()?, next()?);
    Ok((busy + next()? + next()?) / TICKS)
}

fn report(case: &Case, all: &[(Arm, Vec<Run>)]) -> Result<()> {
    let seconds = |runs: &[Run]| runs.iter().map(|run| run.seconds).collect::<Vec<_>>();
    let Some((_, first)) = all.first() else { return Ok(()) };
    println!("\n| | s, median (least to most) | MB/s | CPU s per GB | speed to the first |\n|---|---|---|---|---|");
    for (arm, runs) in all {
        let time = Summary::of(&seconds(runs))?;
        let cpu = Summary::of(&runs.iter().map(|run| run.cpu).collect::<Vec<_>>())?;
        let ratio = match runs.len() {
            0 | 1 => format!("{:.2}", Summary::of(&seconds(first))?.median / time.median),
            _ => {
                let ratio = paired_ratio(&seconds(first), &seconds(runs))?;
                format!(
                    "{:.2} ({:.2} to {:.2})",
                    ratio.ratio, ratio.interval.low, ratio.interval.high
                )
            }
        };
        println!(
            "| {} | {:.2} ({:.2} to {:.2}) | {:.0} | {:.2} | {ratio} |",
            arm.name(),
            time.median,
            time.min,
            time.max,
            case.bytes as f64 / 1e6 / time.median,
            cpu.median / (case.bytes as f64 / 1e9),
        );
    }
    Ok(())
}
