//! The unit of systemd: its text, and what it records about the installation.

use std::path::{Path, PathBuf};

/// The first line of a unit that `weft service install` has written.
const MARK: &str = "# Written by `weft service install`; `weft service uninstall` removes it.";

/// The key of the copied program in the section `[X-Weft]`, which systemd ignores.
const COPY: &str = "Copy=";

/// What systemd starts, and what `uninstall` removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// The program that it starts.
    pub(super) program: PathBuf,
    /// The file that was copied to `program`, as it was then; `None` if the program was there.
    pub(super) copy: Option<Stamp>,
}

/// What distinguishes a file from one that later took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Its length in bytes.
    pub(super) len: u64,
    /// The time of its last change: seconds and nanoseconds since 1970 (UTC).
    pub(super) modified: (i64, i64),
}

impl Unit {
    /// Returns the unit that a text of [`Unit::text`] describes; `None` for any other text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next() != Some(MARK) {
            return None;
        }
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        Some(Self {
            program: value("ExecStart=")?.strip_suffix(" up")?.into(),
            copy: value(COPY).and_then(Stamp::parse),
        })
    }

    /// The text of the unit.
    ///
    /// The daemon starts as root and gives its rights up by itself (docs/guides/privileges.md); the
    /// unit limits what it has until then, and what the broker keeps. Two settings that suggest
    /// themselves are missing: `ProtectKernelTunables` would make `/proc/sys` read-only, where the
    /// daemon switches IPv6 on for its interface, and `StateDirectory` would make root the owner of
    /// files that the daemon wrote. `/etc` is writable for `/etc/resolv.conf`, which is replaced as a
    /// whole, and two directories below `/run` for the files by which other programs leave the interface
    /// alone; the daemon gives up the right to write there before the first packet.
    pub(super) fn text(&self) -> String {
        let program = self.program.display();
        let copy = self.copy.map(|stamp| format!("\n[X-Weft]\n{COPY}{}\n", stamp.text()));
        format!(
            "{MARK}
[Unit]
Description=Weft, a mesh VPN
After=network.target

[Service]
Type=exec
ExecStart={program} up
Restart=on-failure
RestartSec=2
# Wrong usage or configuration, which no restart mends.
RestartPreventExitStatus=2
KillMode=mixed
TimeoutStopSec=20
RuntimeDirectory=weft
LimitCORE=0
LimitMEMLOCK=infinity
LimitNICE=-10

CapabilityBoundingSet={capabilities}
DeviceAllow=/dev/net/tun rw
DevicePolicy=closed
LockPersonality=yes
MemoryDenyWriteExecute=yes
NoNewPrivileges=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectSystem=strict
ReadWritePaths=/etc /var/lib/weft -/run/NetworkManager -/run/systemd/network
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
UMask=0077

[Install]
WantedBy=multi-user.target
Also=weft-closed.service
{copy}",
            capabilities = CAPABILITIES.join(" "),
            copy = copy.unwrap_or_default(),
        )
    }
}

impl Unit {
    /// The text of the unit that keeps packets in from before there is a network until the daemon runs, if the
    /// exit is strict. It comes after the rules of this host, which may begin by removing all others.
    pub(super) fn text_at_boot(&self) -> String {
        let program = self.program.display();
        format!(
            "{MARK}
[Unit]
Description=Weft, packets kept in for a strict exit
DefaultDependencies=no
Wants=network-pre.target
Before=network-pre.target shutdown.target
Conflicts=shutdown.target
After=local-fs.target nftables.service
RequiresMountsFor={program} /var/lib/weft

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={program} service keep-closed
CapabilityBoundingSet=CAP_NET_ADMIN
NoNewPrivileges=yes
ProtectHome=yes
ProtectSystem=strict
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
SystemCallArchitectures=native
UMask=0077

[Install]
WantedBy=sysinit.target
"
        )
    }
}

/// What the daemon needs until it gives up root: to create the interface and bind ports, to become
/// another user whose files it hands over, to empty its bounding set, and to raise limits.
const CAPABILITIES: [&str; 9] = [
    "CAP_CHOWN",
    "CAP_IPC_LOCK",
    "CAP_NET_ADMIN",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
];

impl Stamp {
    fn text(self) -> String {
        let (s, ns) = self.modified;
        format!("{} {s} {ns}", self.len)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ');
        let mut next = || numbers.next()?.parse().ok();
        let (len, s, ns) = (next()?, next()?, next()?);
        Some(Self {
            len: u64::try_from(len).ok()?,
            modified: (s, ns),
        })
    }
}

/// Whether systemd reads the path in `ExecStart=` as it is: absolute, without specifiers (`%`),
/// variables, quotation marks and spaces.
pub(super) fn is_plain(program: &Path) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-' | b'+');
    let text = program.as_os_str().as_encoded_bytes();
    program.is_absolute() && text.iter().all(|b| plain(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(copy: bool) -> Unit {
        Unit {
            program: PathBuf::from("/usr/local/bin/weft"),
            copy: copy.then_some(Stamp {
                len: 7_891_904,
                modified: (1_795_000_000, 123_456_789),
            }),
        }
    }

    #[test]
    fn a_unit_reads_back() {
        for copy in [false, true] {
            assert_eq!(Unit::parse(&unit(copy).text()), Some(unit(copy)));
        }
        let text = unit(true).text();
        assert_eq!(Unit::parse(text.split_once('\n').unwrap().1), None, "another's unit");
        assert_eq!(Unit::parse(""), None);
        assert_eq!(Unit::parse(MARK), None);
        for bad in ["", "1", "1 2", "-1 2 3", "a b c"] {
            assert_eq!(Stamp::parse(bad), None, "{bad}");
        }
    }

    /// What administrators see; a change is a change of the daemon's rights.
    #[test]
    fn the_whole_text() {
        let wanted = include_str!("unit.service");
        assert_eq!(unit(true).text(), wanted);
        assert!(wanted.starts_with(unit(false).text().trim_end()));
        assert_eq!(unit(true).text_at_boot(), include_str!("unit-at-boot.service"));
    }

    #[test]
    fn the_unit_has_no_setting_that_breaks_the_daemon() {
        let text = unit(true).text();
        for setting in [
            "ProtectKernelTunables",
            "PrivateDevices",
            "PrivateNetwork",
            "StateDirectory",
            "User=",
            "DynamicUser",
            "SystemCallFilter",
        ] {
            assert!(!text.contains(setting), "{setting}");
        }
    }

    #[test]
    fn paths_that_systemd_reads_as_they_are() {
        for (path, plain) in [
            ("/usr/bin/weft", true),
            ("/nix/store/0a1-weft-0.1.0+x/bin/weft", true),
            ("weft", false),
            ("/usr/bin/we ft", false),
            ("/usr/bin/%n", false),
            ("/usr/bin/$x", false),
            ("/usr/bin/\"", false),
            ("/usr/bin/we\nft", false),
        ] {
            assert_eq!(is_plain(Path::new(path)), plain, "{path}");
        }
    }
}
