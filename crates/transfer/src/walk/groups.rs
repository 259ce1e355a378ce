//! The groups of a file that have data: holes are passed over without reading them.

use std::fs::File;
use std::io;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::hash::{GROUP, groups};

/// The groups of a file that have data, in ascending order.
#[derive(Debug)]
pub struct DataGroups {
    /// `None`: the file system does not tell holes, or there is no file.
    file: Option<File>,
    size: u64,
    next: u64,
    /// Where the present run of data ends, in groups.
    end: u64,
}

impl DataGroups {
    /// The groups of a file of this size in bytes.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(file: &File, size: u64) -> io::Result<Self> {
        // A descriptor of its own shares its position with no other one here: all reading is by position.
        let file = file.try_clone()?;
        Ok(Self {
            file: Some(file),
            size,
            next: 0,
            end: 0,
        })
    }

    /// No groups.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            file: None,
            size: 0,
            next: 0,
            end: 0,
        }
    }

    /// Finds the next run of data; false if there is none.
    fn find(&mut self) -> bool {
        let all = groups(self.size);
        let Some(file) = &self.file else {
            return false;
        };
        if self.next >= all {
            return false;
        }
        let data = match seek(file, SeekFrom::Data(self.next * GROUP)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return false,
            // Without knowledge of holes everything counts as data.
            Err(_) => {
                self.end = all;
                return true;
            }
        };
        let hole = seek(file, SeekFrom::Hole(data)).unwrap_or(self.size);
        self.next = self.next.max(data / GROUP);
        self.end = hole.min(self.size).div_ceil(GROUP);
        self.next < self.end && self.next < all
    }
}

impl Iterator for DataGroups {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.next >= self.end && !self.find() {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}
