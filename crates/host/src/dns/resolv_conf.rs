//! `/etc/resolv.conf` as this node writes it, on hosts without systemd-resolved (resolv.conf(5)).
//!
//! The file names this node first and then the servers that it named before, so that programs still
//! have a resolver when the daemon has been killed: a closed port is answered at once, and the C
//! library takes the next server.

mod file;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

use super::search::Search;
use super::zone::NETWORKS;

pub use file::{ResolvConf, TakeError};

/// The file that the C library reads.
pub const PATH: &str = "/etc/resolv.conf";

/// The address that the file names. Programs ask port 53 always; on other addresses of loopback it is
/// often in use by other resolvers.
pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 153)), 53);

/// The most servers that the C library reads (`MAXNS`).
const MAX_SERVERS: usize = 3;

/// The beginning of a file of this node.
const MARK: &str = "# Written by weft,";

/// True if this node wrote the text.
fn is_ours(text: &str) -> bool {
    text.starts_with(MARK)
}

/// The text for this node in place of the text `former`, with the same servers, options and search
/// list, each followed or preceded by this node's. The domains of the present list come first: what
/// short names mean now, they mean then. `local_domain` is the one that the C library searches if the
/// file has no list.
fn compose(former: &str, local_domain: Option<&str>, search: &Search) -> String {
    let mut text = format!(
        "{MARK} which answers names below .fips and .weft and asks the servers below for others.\n\
         # It puts the file back that was here before when it ends. Changes belong into that file.\n\
         nameserver {}\n",
        SERVER.ip()
    );
    let mut domains: Vec<String> = local_domain.map(str::to_owned).into_iter().collect();
    for line in former.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            // The last of these lines counts, and only the first word of a domain.
            Some("search") => domains = words.map(str::to_owned).collect(),
            Some("domain") => domains = words.take(1).map(str::to_owned).collect(),
            // With `rotate`, every second query would not reach this node.
            Some("options") => {
                let kept: Vec<_> = words.filter(|word| *word != "rotate").collect();
                if !kept.is_empty() {
                    text.push_str(&format!("options {}\n", kept.join(" ")));
                }
            }
            Some("nameserver") if words.next() == Some(&SERVER.ip().to_string()) => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    for domain in search.domains() {
        if !domains.contains(&domain) {
            domains.push(domain);
        }
    }
    if !domains.is_empty() {
        text.push_str(&format!("search {}\n", domains.join(" ")));
    }
    text
}

/// What is left of a text of this node without its own lines, for a host whose former file was
/// removed by another program.
fn without_ours(text: &str) -> String {
    let networks = format!(".{NETWORKS}");
    let mut left = String::new();
    // The mark has two lines.
    for line in text.lines().skip(2) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") if words.next() == Some(&SERVER.ip().to_string()) => {}
            Some("search") => {
                let others: Vec<_> = words.filter(|word| !word.ends_with(&networks)).collect();
                if !others.is_empty() {
                    left.push_str(&format!("search {}\n", others.join(" ")));
                }
            }
            _ => {
                left.push_str(line);
                left.push('\n');
            }
        }
    }
    left
}

/// The servers that the C library would ask with this text, in its order, without this node.
/// `interface_index` returns the number of an interface, for addresses such as `fe80::1%eth0`.
pub(crate) fn upstreams(text: &str, interface_index: impl Fn(&str) -> Option<u32>) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and(words.next())?;
        match address.split_once('%') {
            None => Some(SocketAddr::new(address.parse().ok()?, 53)),
            Some((address, scope)) => {
                let index = scope.parse().ok().or_else(|| interface_index(scope))?;
                Some(SocketAddrV6::new(address.parse().ok()?, 53, 0, index).into())
            }
        }
    };
    let servers = text.lines().filter_map(server).filter(|server| *server != SERVER);
    servers.take(MAX_SERVERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_options_and_domains_stay() {
        let search = Search::new(["home", "work"]);
        let body = |text: &str| text.lines().skip(2).map(|line| format!("{line}\n")).collect::<String>();
        for (former, domain, expected) in [
            (
                "# by DHCP\nnameserver 192.0.2.53\nnameserver 2001:db8::53\noptions edns0 rotate trust-ad\n",
                None,
                "nameserver 127.0.0.153\n# by DHCP\nnameserver 192.0.2.53\nnameserver 2001:db8::53\n\
                 options edns0 trust-ad\nsearch home.weft work.weft\n",
            ),
            (
                "search a.example b.example\nnameserver 192.0.2.53",
                Some("ignored.example"),
                "nameserver 127.0.0.153\nnameserver 192.0.2.53\nsearch a.example b.example home.weft work.weft\n",
            ),
            (
                "options rotate\nsearch a.example\ndomain\tb.example c.example\n",
                None,
                "nameserver 127.0.0.153\nsearch b.example home.weft work.weft\n",
            ),
            (
                "",
                Some("lan.example"),
                "nameserver 127.0.0.153\nsearch lan.example home.weft work.weft\n",
            ),
            (
                "nameserver 127.0.0.153\nsearch work.weft\n",
                None,
                "nameserver 127.0.0.153\nsearch work.weft home.weft\n",
            ),
        ] {
            let text = compose(former, domain, &search);
            assert!(is_ours(&text) && !is_ours(former));
            assert_eq!(body(&text), expected, "{former:?}");
        }
        assert_eq!(body(&compose("", None, &Search::default())), "nameserver 127.0.0.153\n");
    }

    #[test]
    fn own_lines_can_be_removed() {
        let former = "# by DHCP\nnameserver 192.0.2.53\nsearch a.example\n";
        let ours = compose(former, None, &Search::new(["home"]));
        assert_eq!(without_ours(&ours), former);
    }

    #[test]
    fn servers_as_the_c_library_reads_them() {
        let index = |name: &str| (name == "eth0").then_some(7);
        let text = "nameserver 127.0.0.153\n  nameserver\t192.0.2.53 # comment\n#nameserver 192.0.2.1\n\
                    nameserver fe80::1%eth0\nnameserver fe80::1%9\nnameserver 192.0.2.99\n";
        let expected: [SocketAddr; 3] = [
            "192.0.2.53:53".parse().unwrap(),
            SocketAddrV6::new("fe80::1".parse().unwrap(), 53, 0, 7).into(),
            SocketAddrV6::new("fe80::1".parse().unwrap(), 53, 0, 9).into(),
        ];
        assert_eq!(upstreams(text, index), expected);
        let text = "nameserver fe80::1%eth1\nnameserver x\nnameserver\nserver 192.0.2.1\n";
        assert_eq!(upstreams(text, index), []);
    }
}
