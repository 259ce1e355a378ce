//! From the sections of a file to their values.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use weft_wire::Subnet;
use weft_wire::subnet::{BadSubnet, split};

use super::error::{ConfigError, shown, too_many};
use super::lex::{self, Block, Key, Pair, Section};
use super::value::{is_name, number, number16, or_off, table};
use super::{
    File, Interface, MAX_ADDRESSES, MAX_ALLOWED_IPS, MAX_DNS, MAX_LEN, MIN_MTU, MIN_MTU_IPV6, Peer, PresharedKey,
    PublicKey,
};

/// Reads the bytes of a file.
pub(super) fn read_bytes(bytes: &[u8]) -> Result<File, ConfigError> {
    check_length(bytes.len())?;
    let text = str::from_utf8(bytes).map_err(|error| {
        let before = bytes.iter().take(error.valid_up_to());
        let line = before.filter(|byte| **byte == b'\n').count() + 1;
        ConfigError::NotText { line }
    })?;
    read(text)
}

/// Reads a file.
pub(super) fn read(text: &str) -> Result<File, ConfigError> {
    check_length(text.len())?;
    let blocks = lex::blocks(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    let block = blocks.iter().find(|block| block.section == Section::Interface);
    let interface = interface(block.ok_or(ConfigError::NoInterface)?)?;
    let mut peers = Peers::default();
    for block in blocks.iter().filter(|block| block.section == Section::Peer) {
        peers.read(block)?;
    }
    if let Some(line) = peers.keys.get(&interface.private_key.public()) {
        return Err(ConfigError::OwnKey { line: *line });
    }
    let peers = peers.read;
    Ok(File { interface, peers })
}

fn check_length(length: usize) -> Result<(), ConfigError> {
    match length <= MAX_LEN {
        true => Ok(()),
        false => Err(ConfigError::TooLong(length)),
    }
}

/// Reads the value of a key that is there. `bad` is the error of its line, and of the value as errors show it.
fn value<T>(
    block: &Block<'_>,
    key: &Key,
    read: impl Fn(&str) -> Option<T>,
    bad: impl Fn(usize, String) -> ConfigError,
) -> Result<Option<T>, ConfigError> {
    let Some(Pair { line, value, .. }) = block.one(key) else {
        return Ok(None);
    };
    read(value).map(Some).ok_or_else(|| bad(*line, shown(value)))
}

/// Reads a key of cryptography. Its text is never shown, not even that of a public key: it may be a private one.
fn secret<T: FromStr>(block: &Block<'_>, key: &Key) -> Result<Option<T>, ConfigError> {
    let Some(Pair { line, value, .. }) = block.one(key) else {
        return Ok(None);
    };
    let (line, name) = (*line, key.name);
    let read = value.parse().map(Some);
    read.map_err(|_| ConfigError::BadKey { line, key: name })
}

fn interface(block: &Block<'_>) -> Result<Interface, ConfigError> {
    let private_key = secret(block, &lex::PRIVATE_KEY)?;
    let private_key = private_key.ok_or(ConfigError::NoPrivateKey { line: block.line })?;
    let bad_port = |line, found| ConfigError::BadPort { line, found };
    let listen_port = value(block, &lex::LISTEN_PORT, number16, bad_port)?.flatten();
    let mark = |text: &str| or_off(text, |text| number(text).map(|mark| (mark != 0).then_some(mark)));
    let bad_mark = |line, found| ConfigError::BadMark { line, found };
    let mark = value(block, &lex::FW_MARK, mark, bad_mark)?.flatten();
    let addresses = addresses(block)?;
    let (dns, search) = dns(block)?;
    let mtu = mtu(block, &addresses)?;
    let bad_table = |line, found| ConfigError::BadTable { line, found };
    let table = value(block, &lex::TABLE, table, bad_table)?.unwrap_or_default();
    Ok(Interface {
        private_key,
        listen_port,
        mark,
        addresses,
        dns,
        search,
        mtu,
        table,
    })
}

fn addresses(block: &Block<'_>) -> Result<Vec<(IpAddr, u8)>, ConfigError> {
    let mut addresses = Vec::new();
    for (line, item) in block.items(&lex::ADDRESS) {
        if addresses.len() == MAX_ADDRESSES {
            return Err(too_many(line, "addresses", MAX_ADDRESSES));
        }
        addresses.push(network(line, &lex::ADDRESS, item)?);
    }
    Ok(addresses)
}

fn dns(block: &Block<'_>) -> Result<(Vec<IpAddr>, Vec<String>), ConfigError> {
    let (mut dns, mut search) = (Vec::new(), Vec::new());
    for (line, item) in block.items(&lex::DNS) {
        if dns.len() + search.len() == MAX_DNS {
            return Err(too_many(line, "items of DNS", MAX_DNS));
        }
        match item.parse() {
            Ok(address) => dns.push(address),
            Err(_) if is_name(item) => search.push(item.to_owned()),
            Err(_) => {
                let found = shown(item);
                return Err(ConfigError::BadDns { line, found });
            }
        }
    }
    Ok((dns, search))
}

fn mtu(block: &Block<'_>, addresses: &[(IpAddr, u8)]) -> Result<Option<u16>, ConfigError> {
    let read = |text: &str| number16(text)?.filter(|mtu| *mtu >= MIN_MTU);
    let mtu = value(block, &lex::MTU, read, |line, found| ConfigError::BadMtu {
        line,
        found,
    })?;
    let ipv6 = addresses.iter().any(|(address, _)| address.is_ipv6());
    match (block.one(&lex::MTU), mtu) {
        (Some(Pair { line, .. }), Some(mtu)) if ipv6 && mtu < MIN_MTU_IPV6 => {
            Err(ConfigError::MtuIpv6 { line: *line, mtu })
        }
        _ => Ok(mtu),
    }
}

/// Reads an address with a prefix, or an address alone, which is a host.
fn network(line: usize, key: &Key, text: &str) -> Result<(IpAddr, u8), ConfigError> {
    let read = match text.parse() {
        Ok(address) => Ok((address, Subnet::host(address).prefix_len())),
        Err(_) => split(text),
    };
    read.map_err(|bad| match bad {
        BadSubnet::PrefixLen => ConfigError::BadPrefix {
            line,
            found: shown(text),
        },
        BadSubnet::Form | BadSubnet::HostBits(_) => ConfigError::BadAddress {
            line,
            key: key.name,
            found: shown(text),
        },
    })
}

/// The peers that were read, and what may stand in a file once.
#[derive(Default)]
struct Peers {
    read: Vec<Peer>,
    /// The lines of public keys.
    keys: BTreeMap<PublicKey, usize>,
    /// The index of the peer of a subnet, and the line.
    subnets: BTreeMap<Subnet, (usize, usize)>,
    /// The items of `AllowedIPs`, with those that a peer repeats.
    allowed_ips: usize,
}

impl Peers {
    fn read(&mut self, block: &Block<'_>) -> Result<(), ConfigError> {
        let missing = ConfigError::NoPublicKey { line: block.line };
        let public_key = secret(block, &lex::PUBLIC_KEY)?.ok_or(missing)?;
        let line = block.one(&lex::PUBLIC_KEY).map_or(block.line, |pair| pair.line);
        if let Some(first) = self.keys.insert(public_key, line) {
            return Err(ConfigError::PeerTwice { line, first });
        }
        let preshared_key = secret::<PresharedKey>(block, &lex::PRESHARED_KEY)?;
        let preshared_key = preshared_key.filter(|key| key.as_bytes().iter().any(|byte| *byte != 0));
        let allowed_ips = self.allowed_ips(block)?;
        let bad_endpoint = |line, found| ConfigError::BadEndpoint { line, found };
        let endpoint = value(block, &lex::ENDPOINT, |text| text.parse().ok(), bad_endpoint)?;
        let keepalive = |text: &str| or_off(text, number16);
        let bad_keepalive = |line, found| ConfigError::BadKeepalive { line, found };
        let keepalive = value(block, &lex::KEEPALIVE, keepalive, bad_keepalive)?.flatten();
        self.read.push(Peer {
            public_key,
            preshared_key,
            allowed_ips,
            endpoint,
            keepalive,
        });
        Ok(())
    }

    /// Reads the subnets of the peer that comes next.
    fn allowed_ips(&mut self, block: &Block<'_>) -> Result<Vec<Subnet>, ConfigError> {
        let peer = self.read.len();
        let mut allowed_ips = Vec::new();
        for (line, item) in block.items(&lex::ALLOWED_IPS) {
            self.allowed_ips += 1;
            if self.allowed_ips > MAX_ALLOWED_IPS {
                return Err(too_many(line, "AllowedIPs", MAX_ALLOWED_IPS));
            }
            let (address, prefix_len) = network(line, &lex::ALLOWED_IPS, item)?;
            let subnet = Subnet::around(address, prefix_len).ok_or_else(|| {
                let found = shown(item);
                ConfigError::BadPrefix { line, found }
            })?;
            match self.subnets.insert(subnet, (peer, line)) {
                None => allowed_ips.push(subnet),
                // To say it twice changes nothing.
                Some((owner, _)) if owner == peer => {}
                Some((_, first)) => return Err(ConfigError::SubnetTwice { line, first, subnet }),
            }
        }
        Ok(allowed_ips)
    }
}
