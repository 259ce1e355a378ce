//! Runs of nft(8), the program of nftables.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;
use weft_os::process::is_first_pid_namespace;

/// Paths of nft(8), in the order in which they are tried.
const NFT: [&str; 4] = [
    "/usr/sbin/nft",
    "/sbin/nft",
    "/usr/bin/nft",
    "/run/current-system/sw/bin/nft",
];
/// How long one call of it may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The number of processes that are remembered: more than one look or one change runs.
const MOST: usize = 16;

/// The reason why nft(8) did not do what it was to do. Its text is half a line for the user.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// It is missing.
    #[error("the program nft is not installed; it is in the package nftables")]
    NoProgram,
    /// It could not be run.
    #[error("nft cannot be run: {0}")]
    Run(#[source] io::Error),
    /// It ended with an error.
    #[error("nft said: {0}")]
    Refused(String),
    /// It did not end in time.
    #[error("nft took more than {} s", LIMIT.as_secs())]
    TooSlow,
}

/// The program, and its last processes.
#[derive(Debug, Default)]
pub(super) struct Nft {
    processes: VecDeque<u32>,
}

impl Nft {
    /// Whether a process of this name and number may be one of the last runs. The kernel tells numbers of the
    /// first PID namespace; elsewhere they say nothing.
    pub(super) fn is_own(&self, name: &str, pid: u32) -> bool {
        match is_first_pid_namespace() {
            true => self.processes.contains(&pid),
            false => name == "nft",
        }
    }

    /// Runs it with this input; returns what it printed.
    pub(super) async fn run(&mut self, arguments: &[&str], input: &str) -> Result<String, NftError> {
        let program = NFT
            .into_iter()
            .find(|path| Path::new(path).exists())
            .ok_or(NftError::NoProgram)?;
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(NftError::Run)?;
        self.processes.extend(child.id());
        if self.processes.len() > MOST {
            self.processes.pop_front();
        }
        let stdin = child.stdin.take();
        let exchange = async {
            if let Some(mut stdin) = stdin {
                // If it ends early, what it printed says why.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            child.wait_with_output().await
        };
        let output = timeout(LIMIT, exchange).await.map_err(|_| NftError::TooSlow)?;
        let output = output.map_err(NftError::Run)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(NftError::Refused(said.lines().next().unwrap_or("nothing").to_owned()))
    }
}
