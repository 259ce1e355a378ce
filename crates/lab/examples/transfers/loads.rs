//! Loads that are not programs: a TCP stream, and the null transfer.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::Result;
use crate::mesh::Mesh;

/// Bytes of a group.
const GROUP: u64 = 1 << 20;
/// The head of a group: its number and its length, 8 bytes each, little-endian, and its hash.
const HEAD: usize = 48;

type Done = std::result::Result<(), String>;

/// Sends bytes from memory over one connection, to a reader that drops them.
pub(crate) fn tcp(mesh: &Mesh, bytes: u64) -> Result<()> {
    let (mut sender, mut receiver) = mesh.connect()?;
    let piece = vec![0x5a; GROUP as usize];
    thread::scope(|scope| {
        let given = scope.spawn(move || -> Done {
            let mut left = bytes;
            while left > 0 {
                let len = left.min(GROUP) as usize;
                sender.write_all(&piece[..len]).map_err(|error| error.to_string())?;
                left -= len as u64;
            }
            Ok(())
        });
        let mut room = vec![0; GROUP as usize];
        let mut taken = 0;
        while taken < bytes {
            match receiver.read(&mut room)? {
                0 => return Err("the stream has ended early".into()),
                len => taken += len as u64,
            }
        }
        given.join().map_err(|_| "the sender has panicked")??;
        Ok(())
    })
}

/// A transfer without a protocol: groups of a file are read, hashed and sent; received, hashed and written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Null {
    /// Threads at each end.
    pub(crate) workers: usize,
    /// Whether all of them share one connection.
    pub(crate) shared: bool,
}

/// A group on its way from the reader of a shared connection to a worker.
struct Group {
    index: u64,
    hash: [u8; 32],
    bytes: Vec<u8>,
}

impl Null {
    /// Carries a file over, until it is synced.
    pub(crate) fn run(self, mesh: &Mesh, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (File::open(from)?, File::create(to)?);
        let size = from.metadata()?.len();
        let next = AtomicU64::new(0);
        let count = if self.shared { 1 } else { self.workers };
        let pairs = (0..count).map(|_| mesh.connect()).collect::<Result<Vec<_>>>()?;
        let (senders, receivers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let senders: Vec<_> = senders.into_iter().map(Mutex::new).collect();
        thread::scope(|scope| -> Done {
            let mut all = Vec::new();
            for worker in 0..self.workers {
                let stream = &senders[worker % count];
                let (from, next) = (&from, &next);
                all.push(scope.spawn(move || give(from, size, next, stream)));
            }
            for stream in receivers {
                let to = &to;
                match self.shared {
                    false => all.push(scope.spawn(move || take(stream, to))),
                    true => all.push(scope.spawn(move || take_shared(stream, to, self.workers))),
                }
            }
            let mut ended = Ok(());
            for (place, thread) in all.into_iter().enumerate() {
                let done = thread.join().map_err(|_| "a worker has panicked".to_owned());
                ended = ended.and(done.flatten());
                if place + 1 == self.workers {
                    // The readers end with the connections.
                    for stream in &senders {
                        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                        let _ = stream.shutdown(std::net::Shutdown::Write);
                    }
                }
            }
            ended
        })?;
        to.sync_all()?;
        Ok(())
    }
}

/// Sends groups until none is left.
fn give(from: &File, size: u64, next: &AtomicU64, stream: &Mutex<TcpStream>) -> Done {
    let mut room = vec![0; HEAD + GROUP as usize];
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let at = index * GROUP;
        if at >= size {
            return Ok(());
        }
        let len = (size - at).min(GROUP) as usize;
        let (head, rest) = room.split_at_mut(HEAD);
        let bytes = &mut rest[..len];
        from.read_exact_at(bytes, at).map_err(|error| error.to_string())?;
        head[..8].copy_from_slice(&index.to_le_bytes());
        head[8..16].copy_from_slice(&(len as u64).to_le_bytes());
        head[16..].copy_from_slice(blake3::hash(bytes).as_bytes());
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = stream.write_all(&room[..HEAD + len]);
        sent.map_err(|error| error.to_string())?;
    }
}

/// Reads the next group into `room`.
fn next_group(stream: &mut TcpStream, room: &mut Vec<u8>) -> std::result::Result<Option<(u64, [u8; 32])>, String> {
    let mut head = [0; HEAD];
    let first = stream.read(&mut head).map_err(|error| error.to_string())?;
    if first == 0 {
        return Ok(None);
    }
    stream
        .read_exact(&mut head[first..])
        .map_err(|error| error.to_string())?;
    let (mut index, mut len, mut hash) = ([0; 8], [0; 8], [0; 32]);
    index.copy_from_slice(&head[..8]);
    len.copy_from_slice(&head[8..16]);
    hash.copy_from_slice(&head[16..]);
    room.resize(u64::from_le_bytes(len) as usize, 0);
    stream.read_exact(room).map_err(|error| error.to_string())?;
    Ok(Some((u64::from_le_bytes(index), hash)))
}

fn store(to: &File, index: u64, hash: &[u8; 32], bytes: &[u8]) -> Done {
    if blake3::hash(bytes).as_bytes() != hash {
        return Err("a group has another hash".to_owned());
    }
    to.write_all_at(bytes, index * GROUP).map_err(|error| error.to_string())
}

/// Stores the groups of a connection.
fn take(mut stream: TcpStream, to: &File) -> Done {
    let mut room = Vec::new();
    while let Some((index, hash)) = next_group(&mut stream, &mut room)? {
        store(to, index, &hash, &room)?;
    }
    Ok(())
}

/// Hands the groups of the one connection to workers, which store them.
fn take_shared(mut stream: TcpStream, to: &File, workers: usize) -> Done {
    let (give, taken) = sync_channel::<Group>(workers);
    let (give_back, free): (SyncSender<Vec<u8>>, Receiver<Vec<u8>>) = sync_channel(3 * workers);
    let taken = Mutex::new(taken);
    thread::scope(|scope| {
        for _ in 0..workers {
            let (taken, give_back) = (&taken, give_back.clone());
            scope.spawn(move || -> Done {
                loop {
                    let group = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(Group { index, hash, bytes }) = group else {
                        return Ok(());
                    };
                    store(to, index, &hash, &bytes)?;
                    let _ = give_back.try_send(bytes);
                }
            });
        }
        loop {
            let mut bytes = free.try_recv().unwrap_or_default();
            let Some((index, hash)) = next_group(&mut stream, &mut bytes)? else {
                drop(give);
                return Ok(());
            };
            give.send(Group { index, hash, bytes })
                .map_err(|_| "the workers have ended")?;
        }
    })
}
