//! Reverse names: the address in `1.2.0.192.in-addr.arpa` (RFC 1035, 3.5) and in the 32 digits before
//! `ip6.arpa` (RFC 3596, 2.5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the address whose reverse name consists of `labels`; `None` for every other name, also for
/// that of a part of an address. Each address has one such name: no leading zeros, no spaces.
pub(super) fn address(labels: &[&[u8]]) -> Option<IpAddr> {
    let (rest, top) = labels.split_at_checked(labels.len().checked_sub(2)?)?;
    let is = |of: [&str; 2]| {
        let pairs = top.iter().zip(of);
        pairs
            .into_iter()
            .all(|(label, of)| label.eq_ignore_ascii_case(of.as_bytes()))
    };
    if is(["in-addr", "arpa"]) {
        ipv4(rest).map(IpAddr::V4)
    } else if is(["ip6", "arpa"]) {
        ipv6(rest).map(IpAddr::V6)
    } else {
        None
    }
}

fn ipv4(labels: &[&[u8]]) -> Option<Ipv4Addr> {
    let [d, c, b, a] = <[&[u8]; 4]>::try_from(labels).ok()?.map(decimal);
    Some(Ipv4Addr::new(a?, b?, c?, d?))
}

fn decimal(label: &[u8]) -> Option<u8> {
    let plain = label.iter().all(u8::is_ascii_digit) && (label.len() == 1 || label.first() != Some(&b'0'));
    std::str::from_utf8(label).ok().filter(|_| plain)?.parse().ok()
}

fn ipv6(labels: &[&[u8]]) -> Option<Ipv6Addr> {
    let digits: &[&[u8]; 32] = labels.try_into().ok()?;
    let mut bits = 0;
    for label in digits.iter().rev() {
        let [digit] = *label else { return None };
        bits = bits << 4 | u128::from(char::from(*digit).to_digit(16)?);
    }
    Some(Ipv6Addr::from_bits(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Option<IpAddr> {
        let labels: Vec<&[u8]> = name.split('.').map(str::as_bytes).collect();
        address(&labels)
    }

    #[test]
    fn names_of_whole_addresses() {
        assert_eq!(of("1.2.0.192.in-addr.arpa"), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(of("255.0.44.10.IN-ADDR.Arpa"), Some("10.44.0.255".parse().unwrap()));
        let six = "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.0.0.0.0.1.2.3.4.IP6.ARPA";
        assert_eq!(
            of(six),
            Some("4321:0:1:2:3:4:567:89ab".parse().unwrap()),
            "RFC 3596, 2.5"
        );
    }

    #[test]
    fn other_names_have_no_address() {
        let zeros = "0.".repeat(31);
        for name in [
            "arpa",
            "in-addr.arpa",
            "2.0.192.in-addr.arpa",
            "0.1.2.0.192.in-addr.arpa",
            "256.2.0.192.in-addr.arpa",
            "01.2.0.192.in-addr.arpa",
            "+1.2.0.192.in-addr.arpa",
            "1.2.0.192.in-addr.com",
            "1.2.0.192.ip6.arpa",
            "d.f.ip6.arpa",
            &format!("{zeros}ip6.arpa"),
            &format!("{zeros}g.ip6.arpa"),
            &format!("{zeros}00.ip6.arpa"),
            &format!("{zeros}0.0.ip6.arpa"),
        ] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
