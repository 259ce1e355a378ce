//! A device with WireGuard: the real wireguard-go on a host, set up from a file of wg-quick with wg(8).

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_lab::child::LoggedChild;
use weft_lab::host::Host;
use weft_os::netlink::{InterfaceAddress, Route};
use weft_os::test_support::skip;
use weft_wire::Subnet;

use super::{MINUTE, wait_until};

const ENVIRONMENT: &str = "WEFT_WIREGUARD_GO";
/// The name of its interface.
const NAME: &str = "wg0";

/// The path of wireguard-go; `None`, and a message, if the environment names none, or if wg(8) is missing.
pub fn wireguard_go() -> Option<PathBuf> {
    let path = std::env::var_os(ENVIRONMENT).filter(|path| !path.is_empty());
    if path.is_none() {
        skip(format!("{ENVIRONMENT} is not set to the path of wireguard-go"));
        return None;
    }
    let found = Command::new("wg").arg("--version").output().is_ok();
    if !found {
        skip("the package wireguard-tools is not installed".to_owned());
        return None;
    }
    path.map(PathBuf::from)
}

/// A device that uses a file.
pub struct WireGuardDevice {
    pub host: Host,
    program: PathBuf,
    /// What it has as `/run`, where the socket of wireguard-go is.
    run: PathBuf,
    file: PathBuf,
    log: PathBuf,
    child: Option<LoggedChild>,
}

impl WireGuardDevice {
    /// Starts wireguard-go on a host with the settings of a file.
    pub fn start(program: &Path, host: &Host, directory: &Path, text: &str) -> Self {
        let run = directory.join(format!("{}-run", host.name()));
        std::fs::create_dir(&run).unwrap();
        let folder = directory.join(format!("{}-file", host.name()));
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join(format!("{NAME}.conf"));
        std::fs::write(&file, text).unwrap();
        let mut device = Self {
            host: host.clone(),
            program: program.to_owned(),
            run,
            file,
            log: directory.join(format!("{}-wireguard-go.log", host.name())),
            child: None,
        };
        device.launch();
        device
    }

    /// Starts the program, and sets it up as wg-quick does.
    pub fn launch(&mut self) {
        let mut command = self.beside_run("exec \"$@\"");
        command.arg(&self.program).args(["--foreground", NAME]);
        self.child = Some(LoggedChild::start(&self.host, command, &self.log).unwrap());
        wait_until(MINUTE, "wireguard-go answers", || {
            let ended = self.child.as_mut().unwrap().ended().unwrap();
            assert!(ended.is_none(), "{}", self.child.as_ref().unwrap().log().unwrap());
            self.try_wg(&["show", NAME]).is_some()
        });
        let mut set = self.beside_run("wg-quick strip \"$1\" | wg setconf \"$2\" /dev/stdin");
        set.arg("sh").arg(&self.file).arg(NAME);
        let done = self.host.command(set, MINUTE).unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let changed = self.host.netlink(|netlink| {
            let index = netlink.interface(NAME)?.index;
            let addresses = self.values("Address").into_iter();
            for (address, prefix_len) in addresses.map(|text| pair(&text)) {
                netlink.add_address(InterfaceAddress {
                    index,
                    address,
                    prefix_len,
                })?;
            }
            let mtu = self.values("MTU").first().and_then(|text| text.parse().ok());
            netlink.set_mtu(index, mtu.unwrap_or(1_420))?;
            netlink.set_up(index)?;
            for text in self.values("AllowedIPs") {
                let subnet: Subnet = text.parse().unwrap();
                netlink.add_route(Route::to_interface(subnet.address(), subnet.prefix_len(), index))?;
            }
            Ok(())
        });
        changed.unwrap();
    }

    /// Kills it with SIGKILL. Its interface goes with it.
    pub fn kill(&mut self) {
        self.child.take().unwrap().kill().unwrap();
    }

    /// Its address in the network.
    pub fn address(&self) -> Ipv4Addr {
        match pair(&self.values("Address")[0]).0 {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(ip) => panic!("{ip}"),
        }
    }

    /// Gives its interface another address.
    pub fn add_address(&self, address: Ipv4Addr) {
        let added = self.host.netlink(|netlink| {
            let index = netlink.interface(NAME)?.index;
            netlink.add_address(InterfaceAddress {
                index,
                address: address.into(),
                prefix_len: 32,
            })
        });
        added.unwrap();
    }

    /// Runs wg(8) and returns what it prints.
    pub fn wg(&self, arguments: &[&str]) -> String {
        self.try_wg(arguments).unwrap_or_else(|| panic!("wg {arguments:?}"))
    }

    fn try_wg(&self, arguments: &[&str]) -> Option<String> {
        let mut command = self.beside_run("exec wg \"$@\"");
        command.arg("sh").args(arguments);
        let output = self.host.command(command, MINUTE).ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// A shell script with the socket of this device in place.
    fn beside_run(&self, script: &str) -> Command {
        let mut command = Command::new("unshare");
        let whole = format!("mount --bind '{}' /run && {script}", self.run.display());
        command.args(["--mount", "sh", "-c", &whole]);
        if script == "exec \"$@\"" {
            command.arg("sh");
        }
        command
    }

    /// The values of a key in the file, which are separated by commas.
    fn values(&self, key: &str) -> Vec<String> {
        let text = std::fs::read_to_string(&self.file).unwrap();
        let pairs = text.lines().filter_map(|line| line.split_once(" = "));
        let values = pairs
            .filter(|(name, _)| *name == key)
            .flat_map(|(_, value)| value.split(", "));
        values.map(ToOwned::to_owned).collect()
    }
}

fn pair(text: &str) -> (IpAddr, u8) {
    let (address, prefix_len) = text.split_once('/').unwrap();
    (address.parse().unwrap(), prefix_len.parse().unwrap())
}
