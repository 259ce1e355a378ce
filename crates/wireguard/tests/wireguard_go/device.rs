//! A running wireguard-go on a host, with one interface and one peer. Its settings go through the socket of its
//! configuration protocol, a text of lines `key=value`.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use weft_lab::child::LoggedChild;
use weft_lab::host::Host;
use weft_os::netlink::{InterfaceAddress, Route};
use weft_os::test_support::{skip, wait_until};
use weft_wireguard::keys::{PresharedKey, PrivateKey, PublicKey};

const ENVIRONMENT: &str = "WEFT_WIREGUARD_GO";
/// The name of its interface.
const NAME: &str = "wg0";
/// How long it may take to answer on its socket.
const ANSWER: Duration = Duration::from_secs(60);

/// The path of wireguard-go; `None`, and a message, if the environment names none.
pub(crate) fn binary() -> Option<PathBuf> {
    let path = std::env::var_os(ENVIRONMENT).filter(|path| !path.is_empty());
    if path.is_none() {
        skip(format!("{ENVIRONMENT} is not set to the path of wireguard-go"));
    }
    path.map(PathBuf::from)
}

/// What a device knows of its peer.
pub(crate) struct Peer {
    pub(crate) key: PublicKey,
    pub(crate) preshared: Option<PresharedKey>,
    pub(crate) endpoint: Option<SocketAddr>,
    /// Its address in the tunnel.
    pub(crate) address: Ipv4Addr,
}

impl Peer {
    /// The lines that set it.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("public_key={}", HEXLOWER.encode(self.key.as_bytes()))];
        if let Some(preshared) = &self.preshared {
            lines.push(format!("preshared_key={}", hex_of_text(&preshared.to_text())));
        }
        if let Some(endpoint) = self.endpoint {
            lines.push(format!("endpoint={endpoint}"));
        }
        lines.push(format!("allowed_ip={}/32", self.address));
        lines
    }
}

/// The text of a key as wg(8) has it, as the socket takes it.
fn hex_of_text(text: &str) -> String {
    HEXLOWER.encode(&BASE64.decode(text.as_bytes()).unwrap())
}

pub(crate) struct Device {
    pub(crate) host: Host,
    program: PathBuf,
    private: PrivateKey,
    address: Ipv4Addr,
    port: u16,
    peer: Peer,
    /// What it has as `/run`.
    run: PathBuf,
    log: PathBuf,
    child: Option<LoggedChild>,
}

impl Device {
    /// Starts wireguard-go with an address in the tunnel, at a port of the host.
    pub(crate) fn start(
        program: &Path,
        (host, directory): (Host, &Path),
        private: PrivateKey,
        (address, port): (Ipv4Addr, u16),
        peer: Peer,
    ) -> Self {
        let run = directory.join(format!("{}-run", host.name()));
        std::fs::create_dir(&run).unwrap();
        let mut device = Self {
            log: directory.join(format!("{}.log", host.name())),
            host,
            program: program.to_owned(),
            private,
            address,
            port,
            peer,
            run,
            child: None,
        };
        device.launch();
        device
    }

    /// Starts the program, whose interface goes with it.
    pub(crate) fn launch(&mut self) {
        let mut command = Command::new("unshare");
        let script = "mount --bind \"$0\" /run && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script]).arg(&self.run);
        command.arg(&self.program).args(["--foreground", NAME]);
        command.env("LOG_LEVEL", "verbose");
        self.child = Some(LoggedChild::start(&self.host, command, &self.log).unwrap());
        wait_until(ANSWER, "wireguard-go answers", || {
            let ended = self.child.as_mut().unwrap().ended().unwrap();
            assert!(ended.is_none(), "{}", self.log());
            UnixStream::connect(self.socket()).is_ok()
        });
        let mut lines = vec![
            format!("private_key={}", hex_of_text(&self.private.to_text())),
            format!("listen_port={}", self.port),
            "replace_peers=true".to_owned(),
        ];
        lines.extend(self.peer.lines());
        self.set(&lines);
        let changed = self.host.netlink(|netlink| {
            let index = netlink.interface(NAME)?.index;
            netlink.add_address(InterfaceAddress {
                index,
                address: self.address.into(),
                prefix_len: 32,
            })?;
            netlink.set_up(index)?;
            netlink.add_route(Route::to_interface(IpAddr::V4(self.peer.address), 32, index))
        });
        changed.unwrap();
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.take().unwrap().kill().unwrap();
    }

    /// Changes settings of the interface.
    pub(crate) fn set(&self, lines: &[String]) {
        let answer = self.ask(&format!("set=1\n{}\n\n", lines.join("\n")));
        assert_eq!(answer, "errno=0\n\n", "{lines:?}");
    }

    /// Changes settings of the peer.
    pub(crate) fn set_peer(&self, line: String) {
        let peer = format!("public_key={}", HEXLOWER.encode(self.peer.key.as_bytes()));
        self.set(&[peer, "update_only=true".to_owned(), line]);
    }

    /// The value of a setting or a counter, the first of this name.
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        let answer = self.ask("get=1\n\n");
        let mut lines = answer.lines().filter_map(|line| line.split_once('='));
        lines.find(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
    }

    /// Its log since its start.
    pub(crate) fn log(&self) -> String {
        self.child
            .as_ref()
            .map_or_else(String::new, |child| child.log().unwrap())
    }

    /// How often a text is in its log.
    pub(crate) fn logged(&self, text: &str) -> usize {
        self.log().matches(text).count()
    }

    fn socket(&self) -> PathBuf {
        self.run.join("wireguard").join(format!("{NAME}.sock"))
    }

    /// Sends one request, and returns the answer, which an empty line ends.
    fn ask(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let (mut answer, mut buf) = (Vec::new(), [0; 4096]);
        while !answer.ends_with(b"\n\n") {
            let length = stream.read(&mut buf).unwrap();
            assert_ne!(length, 0, "the answer ends early");
            answer.extend_from_slice(&buf[..length]);
        }
        String::from_utf8(answer).unwrap()
    }
}
