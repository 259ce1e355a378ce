//! The files of a run.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use weft_lab::child::run_command;
use weft_lab::random::SplitMix64;

use crate::{LIMIT, Result};

/// Bytes of a small file.
pub(crate) const SMALL: u64 = 4096;
/// The name of the large file.
pub(crate) const LARGE: &str = "large";
/// Small files of a folder.
const PER_FOLDER: u64 = 1000;

/// Creates a folder with one large file, or with small ones in folders; all bytes are random.
pub(crate) fn create(folder: &Path, files: Option<u64>, bytes: u64) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut random = SplitMix64::new(40);
    let mut piece = vec![0; SMALL as usize];
    let mut file = File::create(folder.join(LARGE))?;
    for n in 0..bytes.div_ceil(SMALL) {
        if files.is_some() {
            let inner = folder.join(format!("{:04}", n / PER_FOLDER));
            if n % PER_FOLDER == 0 {
                fs::create_dir(&inner)?;
            }
            file = File::create(inner.join(format!("{n:06}")))?;
        }
        for word in piece.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next_word().to_le_bytes());
        }
        file.write_all(&piece)?;
    }
    if files.is_some() {
        fs::remove_file(folder.join(LARGE))?;
    }
    rustix::fs::sync();
    Ok(())
}

/// Copies with `cp -a`, and waits until the copy is on the disk.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut cp = Command::new("cp");
    cp.arg("-a").arg(from).arg(to);
    succeed(cp)?;
    let folder = File::open(to)?;
    Ok(rustix::fs::syncfs(&folder)?)
}

/// Fails unless two files, or all files of two folders, have the same bytes.
pub(crate) fn compare(one: &Path, other: &Path) -> Result<()> {
    if !one.is_dir() {
        let same = same(one, other)?;
        return if same {
            Ok(())
        } else {
            Err(format!("{} has other bytes", other.display()).into())
        };
    }
    let (mut here, mut there) = (0, fs::read_dir(other)?.count());
    for entry in fs::read_dir(one)? {
        let entry = entry?;
        compare(&entry.path(), &other.join(entry.file_name()))?;
        here += 1;
    }
    there -= here;
    if there == 0 {
        Ok(())
    } else {
        Err(format!("{} has more files", other.display()).into())
    }
}

fn same(one: &Path, other: &Path) -> Result<bool> {
    let mut files = [File::open(one)?, File::open(other)?];
    let mut rooms = [vec![0; 1 << 20], vec![0; 1 << 20]];
    if files[0].metadata()?.len() != files[1].metadata()?.len() {
        return Ok(false);
    }
    loop {
        let len = files[0].read(&mut rooms[0])?;
        if len == 0 {
            return Ok(true);
        }
        files[1].read_exact(&mut rooms[1][..len])?;
        if rooms[0][..len] != rooms[1][..len] {
            return Ok(false);
        }
    }
}

/// Runs a command to its end; an exit status other than 0 is an error with what it said.
pub(crate) fn succeed(command: Command) -> Result<()> {
    let shown = format!("{command:?}");
    let output = run_command(command, LIMIT)?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{shown}: {}", said.lines().last().unwrap_or("")).into())
        }
    }
}
