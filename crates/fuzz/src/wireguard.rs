//! The fuzz target of weft-wireguard: files of wg-quick.

use weft_wireguard::config::{
    File, MAX_ADDRESSES, MAX_ALLOWED_IPS, MAX_DNS, MAX_LEN, MAX_PEERS, MIN_MTU, MIN_MTU_IPV6, Table,
};

/// The characters of half a key. An error shows fewer of base64 on end.
const HALF_KEY: usize = 22;
/// The bytes of the longest error.
const MAX_ERROR: usize = 400;

/// Reads the bytes as a file of wg-quick.
///
/// # Panics
/// If a file exceeds its bounds, if its text reads back as another file, or if an error has several lines or half
/// of a key.
pub fn wg_config(bytes: &[u8]) {
    let file = match File::read_bytes(bytes) {
        Ok(file) => file,
        Err(error) => return shown(&error.to_string()),
    };
    bounded(&file);
    let text = file.to_text();
    assert_eq!(text.len(), text.capacity(), "a copy of a secret stays behind");
    if text.len() <= MAX_LEN {
        // The text has all that the file says, in one form.
        assert_eq!(File::read(&text).unwrap().to_text(), text);
    }
}

/// Checks the text of an error.
fn shown(error: &str) {
    assert!(
        !error.chars().any(char::is_control) && error.len() <= MAX_ERROR,
        "{error}"
    );
    let base64 = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    let longest = error.split(|c| !base64(c)).map(str::len).max();
    assert!(longest < Some(HALF_KEY), "{error}");
}

/// Checks the bounds of a file.
fn bounded(file: &File) {
    let interface = &file.interface;
    assert!(interface.addresses.len() <= MAX_ADDRESSES);
    assert!(interface.dns.len() + interface.search.len() <= MAX_DNS);
    assert!(interface.listen_port != Some(0) && interface.mark != Some(0) && interface.table != Table::Number(0));
    let ipv6 = interface.addresses.iter().any(|(address, _)| address.is_ipv6());
    let least = if ipv6 { MIN_MTU_IPV6 } else { MIN_MTU };
    assert!(interface.mtu.is_none_or(|mtu| mtu >= least));
    assert!(file.peers.len() <= MAX_PEERS);
    let mut subnets: Vec<_> = file.peers.iter().flat_map(|peer| &peer.allowed_ips).collect();
    let count = subnets.len();
    subnets.sort_unstable();
    subnets.dedup();
    assert!(count <= MAX_ALLOWED_IPS && subnets.len() == count);
    let own = interface.private_key.public();
    for peer in &file.peers {
        assert!(peer.public_key != own && peer.keepalive != Some(0));
        assert!(peer.endpoint.as_ref().is_none_or(|endpoint| endpoint.port != 0));
    }
}
