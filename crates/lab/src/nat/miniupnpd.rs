//! A gateway that maps ports on request: a NAT box of the kernel with miniupnpd(8), which speaks PCP,
//! NAT-PMP and UPnP-IGD.
//!
//! miniupnpd serves outer addresses that are public only; those of 11.0.0.0/8 are for it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::kernel::{KernelNat, KernelNatError, nft};
use crate::child::LoggedChild;

/// The table of its rules.
const TABLE: &str = "miniupnpd";
/// Time limit of nft.
const NFT_LIMIT: Duration = Duration::from_secs(10);

/// Time limit until miniupnpd listens, and the polling interval.
const READY: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// The protocols by which it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speaks {
    /// PCP and NAT-PMP.
    Pcp,
    /// UPnP-IGD.
    Upnp,
}

/// The program on its gateway. It ends when it is dropped.
#[derive(Debug)]
pub struct Miniupnpd {
    speaks: Speaks,
    files: Files,
    running: Mutex<LoggedChild>,
}

/// The files of the program.
#[derive(Debug)]
struct Files {
    config: PathBuf,
    pid: PathBuf,
    log: PathBuf,
}

impl Miniupnpd {
    /// Starts it on a NAT box, with its files in `directory`, each called `name`. The firewall of the
    /// box lets in what is mapped.
    ///
    /// # Errors
    /// [`KernelNatError`]; without miniupnpd, [`KernelNatError::Child`].
    pub fn start(nat: &KernelNat, (directory, name): (&Path, &str), speaks: Speaks) -> Result<Self, KernelNatError> {
        nft(nat.host(), "insert rule ip nat_box pass ct status dnat accept")?;
        let file = |extension: &str| directory.join(format!("{name}.{extension}"));
        let files = Files {
            config: file("conf"),
            pid: file("pid"),
            log: file("log"),
        };
        let running = Mutex::new(files.start(nat, speaks)?);
        Ok(Self { speaks, files, running })
    }

    /// Restarts the NAT box, as [`KernelNat::reboot`] does. It has no mapped ports then.
    ///
    /// # Errors
    /// If miniupnpd does not start again, or the kernel refuses.
    pub fn reboot(&self, nat: &KernelNat, outer: Option<&str>) -> Result<(), KernelNatError> {
        let mut running = self.running();
        running.kill()?;
        nft(nat.host(), &format!("delete table inet {TABLE}"))?;
        nat.reboot(outer)?;
        *running = self.files.start(nat, self.speaks)?;
        Ok(())
    }

    /// The rules of the ports that are mapped at present, as nft(8) lists them.
    ///
    /// # Errors
    /// If nft cannot be run.
    pub fn mapped(&self, nat: &KernelNat) -> Result<String, KernelNatError> {
        let mut command = Command::new("nft");
        command.args(["list", "chain", "inet", TABLE, "mapped_prerouting"]);
        let output = nat.host().command(command, NFT_LIMIT)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What it has logged since its last start.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn log(&self) -> Result<String, KernelNatError> {
        Ok(self.running().log()?)
    }

    fn running(&self) -> MutexGuard<'_, LoggedChild> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    /// Starts the program with rules of its own, and waits until it listens.
    fn start(&self, nat: &KernelNat, speaks: Speaks) -> Result<LoggedChild, KernelNatError> {
        let [inside, outside] = nat.interfaces();
        nft(
            nat.host(),
            &format!(
                "table inet {TABLE} {{
                    chain forward {{ type filter hook forward priority filter; jump mapped_forward; }}
                    chain prerouting {{ type nat hook prerouting priority dstnat; jump mapped_prerouting; }}
                    chain postrouting {{ type nat hook postrouting priority srcnat - 1; jump mapped_postrouting; }}
                    chain mapped_forward {{ }}
                    chain mapped_prerouting {{ }}
                    chain mapped_postrouting {{ }}
                }}"
            ),
        )?;
        let yes = |speaks_it| if speaks_it { "yes" } else { "no" };
        let text = format!(
            "ext_ifname={outside}\nlistening_ip={inside}\nport=0\nsystem_uptime=yes\nsecure_mode=yes\n\
             enable_natpmp={}\nenable_upnp={}\n\
             upnp_table_name={TABLE}\nupnp_nat_table_name={TABLE}\nupnp_forward_chain=mapped_forward\n\
             upnp_nat_chain=mapped_prerouting\nupnp_nat_postrouting_chain=mapped_postrouting\n\
             uuid=00000000-0000-0000-0000-000000000001\n\
             allow 1024-65535 0.0.0.0/0 1024-65535\ndeny 0-65535 0.0.0.0/0 0-65535\n",
            yes(speaks == Speaks::Pcp),
            yes(speaks == Speaks::Upnp),
        );
        std::fs::write(&self.config, text).map_err(|source| KernelNatError::File {
            path: self.config.clone(),
            source,
        })?;
        let mut command = Command::new("miniupnpd");
        command.arg("-d").arg("-f").arg(&self.config);
        command.arg("-P").arg(&self.pid);
        let child = LoggedChild::start(nat.host(), command, &self.log)?;
        wait_ready(&child, nat, speaks)?;
        Ok(child)
    }
}

/// Waits until the socket that is asked first is there.
fn wait_ready(child: &LoggedChild, nat: &KernelNat, speaks: Speaks) -> Result<(), KernelNatError> {
    // The port, as the kernel lists it.
    let port = match speaks {
        Speaks::Pcp => ":14E7 ",
        Speaks::Upnp => ":076C ",
    };
    let bound = || std::fs::read_to_string("/proc/thread-self/net/udp").is_ok_and(|text| text.contains(port));
    let end = Instant::now() + READY;
    while !nat.host().run(bound)? {
        if Instant::now() > end {
            let log = child.log()?;
            let last = log.lines().last().unwrap_or_default();
            return Err(KernelNatError::Miniupnpd(last.escape_debug().to_string()));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}
