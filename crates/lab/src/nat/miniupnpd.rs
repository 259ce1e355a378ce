//! A gateway that maps ports on request: a NAT box of the kernel with miniupnpd(8), which speaks PCP,
//! NAT-PMP and UPnP-IGD.
//!
//! miniupnpd serves outer addresses that are public only; those of 11.0.0.0/8 are for it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// PCP and NAT-PMP.
    Pcp,
    /// UPnP-IGD.
    Upnp,
}

/// The program on its gateway. It ends when it is dropped.
#[derive(Debug)]
pub struct Miniupnpd {
    child: LoggedChild,
}

impl Miniupnpd {
    /// Starts it on a NAT box, with its files in `directory`. The firewall of the box lets in what is
    /// mapped.
    ///
    /// # Errors
    /// [`KernelNatError`]; without miniupnpd, [`KernelNatError::Child`].
    pub fn start(nat: &KernelNat, directory: &Path, speaks: Speaks) -> Result<Self, KernelNatError> {
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
                }}
                insert rule ip nat_box pass ct status dnat accept"
            ),
        )?;
        let yes = |speaks_it| if speaks_it { "yes" } else { "no" };
        let text = format!(
            "ext_ifname={outside}\nlistening_ip={inside}\nport=0\nsystem_uptime=yes\nsecure_mode=yes\n\
             enable_natpmp={}\nenable_upnp={}\n\
             upnp_table_name={TABLE}\nupnp_nat_table_name={TABLE}\nupnp_forward_chain=mapped_forward\n\
             upnp_nat_chain=mapped_prerouting\nupnp_nat_postrouting_chain=mapped_postrouting\n\
             uuid=00000000-0000-0000-0000-000000000001\nlease_file={}\n\
             allow 1024-65535 192.168.0.0/16 1024-65535\ndeny 0-65535 0.0.0.0/0 0-65535\n",
            yes(speaks == Speaks::Pcp),
            yes(speaks == Speaks::Upnp),
            directory.join("miniupnpd.leases").display(),
        );
        let config = directory.join("miniupnpd.conf");
        std::fs::write(&config, text).map_err(|source| KernelNatError::File {
            path: config.clone(),
            source,
        })?;
        let mut command = Command::new("miniupnpd");
        command.arg("-d").arg("-f").arg(&config);
        command.arg("-P").arg(directory.join("miniupnpd.pid"));
        let child = LoggedChild::start(nat.host(), command, &directory.join("miniupnpd.log"))?;
        let started = Self { child };
        started.wait_ready(nat, speaks)?;
        Ok(started)
    }

    /// Waits until the socket that is asked first is there.
    fn wait_ready(&self, nat: &KernelNat, speaks: Speaks) -> Result<(), KernelNatError> {
        // The port, as the kernel lists it.
        let port = match speaks {
            Speaks::Pcp => ":14E7 ",
            Speaks::Upnp => ":076C ",
        };
        let bound = || std::fs::read_to_string("/proc/thread-self/net/udp").is_ok_and(|text| text.contains(port));
        let end = Instant::now() + READY;
        while !nat.host().run(bound)? {
            if Instant::now() > end {
                let log = self.log()?;
                let last = log.lines().last().unwrap_or_default();
                return Err(KernelNatError::Miniupnpd(last.escape_debug().to_string()));
            }
            std::thread::sleep(POLL);
        }
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

    /// What it has logged.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn log(&self) -> Result<String, KernelNatError> {
        Ok(self.child.log()?)
    }
}
