//! Names by an exit: it follows the resolver of its host, and answers those that may use it.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use simple_dns::{RCODE, TYPE};
use weft_lab::host::Host;
use weft_os::assert_strict;
use weft_os::test_support::require_nft;

use super::internet::{Internet, TRIED, answer, done, run};
use super::names::{Answer, read, request};
use crate::common::{PATIENCE, address, beside, wait_until};

/// The port at which an exit answers.
const PORT: u16 = 7_353;
const NAME: &str = "www.example.org";

/// A name server of one address, which answers each query with one address of its own choice.
struct Server {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Server {
    fn start(host: &Host, ip: &str, says: [u8; 4]) -> Self {
        let at = SocketAddr::new(ip.parse().unwrap(), 53);
        let udp = host.run(|| UdpSocket::bind(at)).unwrap().unwrap();
        let tcp = host.run(|| TcpListener::bind(at)).unwrap().unwrap();
        udp.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let says = Some(Ipv4Addr::from(says));
        let (ends, end) = (stop.clone(), stop.clone());
        let by_udp = move || {
            let mut query = [0; 1500];
            while !ends.load(Ordering::Relaxed) {
                if let Ok((len, from)) = udp.recv_from(&mut query) {
                    let _ = udp.send_to(&answer(&query[..len], says), from);
                }
            }
        };
        let by_tcp = move || {
            while !end.load(Ordering::Relaxed) {
                match tcp.accept() {
                    Ok((stream, _)) => drop(framed(stream, says)),
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        };
        Self {
            stop,
            threads: vec![std::thread::spawn(by_udp), std::thread::spawn(by_tcp)],
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Answers one query.
fn framed(mut stream: TcpStream, says: Option<Ipv4Addr>) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut query)?;
    let answer = answer(&query, says);
    stream.write_all(&[&(answer.len() as u16).to_be_bytes(), &answer[..]].concat())
}

/// What a query by UDP gets.
fn by_udp(from: &Host, at: SocketAddr, name: &str) -> Option<Answer> {
    let ask = || {
        let any: IpAddr = match at {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.connect(at).ok()?;
        socket.set_read_timeout(Some(2 * TRIED)).unwrap();
        socket.send(&request(name, TYPE::A)).ok()?;
        let mut bytes = [0; 1500];
        let len = socket.recv(&mut bytes).ok()?;
        Some(read(&bytes[..len]))
    };
    from.run(ask).unwrap()
}

/// The same by TCP.
fn by_tcp(from: &Host, at: SocketAddr, name: &str) -> Option<Answer> {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&at, TRIED).ok()?;
        stream.set_read_timeout(Some(2 * TRIED)).unwrap();
        let query = request(name, TYPE::A);
        stream
            .write_all(&[&(query.len() as u16).to_be_bytes(), &query[..]].concat())
            .ok()?;
        let mut len = [0; 2];
        stream.read_exact(&mut len).ok()?;
        let mut bytes = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut bytes).ok()?;
        Some(read(&bytes))
    };
    from.run(ask).unwrap()
}

/// A laptop, and the addresses of the exit that it uses.
struct Named {
    net: Internet,
    at: [SocketAddr; 2],
    resolv_conf: PathBuf,
}

impl Named {
    fn start() -> Self {
        let net = Internet::by_exit(true);
        let nas = net.nas.host();
        let text = run(nas, "ip", &["-4", "-o", "address", "show", "dev", "weft0"]);
        let ipv4 = text.split_whitespace().nth(3).unwrap().split('/').next().unwrap();
        Self {
            at: [ipv4.parse().unwrap(), address(&net.nas)].map(|ip: IpAddr| SocketAddr::new(ip, PORT)),
            resolv_conf: net.resolv_conf("nas"),
            net,
        }
    }

    /// What the laptop gets at both addresses of the exit, by both transports, if it is the same.
    fn answers(&self) -> Option<Answer> {
        let laptop = self.net.laptop.host();
        let all = self
            .at
            .map(|at| [by_udp(laptop, at, NAME), by_tcp(laptop, at, NAME)])
            .concat();
        all.iter().all(|answer| *answer == all[0]).then_some(all[0])?
    }

    /// Another resolver of the exit's host, as a DHCP client writes it.
    fn resolver(&self, text: &str) {
        std::fs::write(&self.resolv_conf, text).unwrap();
    }

    fn gets(&self, says: [u8; 4]) -> bool {
        self.answers() == Some((RCODE::NoError, Some(IpAddr::from(says))))
    }
}

#[test]
fn an_exit_asks_the_resolver_that_its_host_has_now() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let named = Named::start();
        let (nas, target) = (named.net.nas.host(), named.net.host("target"));
        let doctor = || {
            let output = named.net.nas.attempt(&["doctor"], PATIENCE).unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        // None, and one that comes late.
        named.resolver("");
        wait_until(PATIENCE, "doctor names it", || {
            doctor().contains("this host has no name server")
        });
        let code = |answer: Option<Answer>| answer.map(|(code, _)| code);
        wait_until(PATIENCE, "they fail at once", || {
            code(by_tcp(named.net.laptop.host(), named.at[0], NAME)) == Some(RCODE::ServerFailure)
        });
        let local = Server::start(nas, "127.0.0.1", [192, 0, 2, 1]);
        named.resolver("nameserver 127.0.0.1\n");
        wait_until(PATIENCE, "one on loopback", || named.gets([192, 0, 2, 1]));
        wait_until(PATIENCE, "doctor finds it", || !doctor().contains("name server"));
        let _ipv6 = Server::start(target, "2001:db8:2::80", [192, 0, 2, 2]);
        named.resolver("nameserver 2001:db8:2::80\n");
        wait_until(PATIENCE, "one of IPv6", || named.gets([192, 0, 2, 2]));
        drop(local);
        named.resolver("nameserver 127.0.0.1\n");
        wait_until(PATIENCE, "doctor names it", || {
            doctor().contains("the name server 127.0.0.1:53 does not answer")
        });
        wait_until(PATIENCE, "the laptop says so", || {
            let why = named.net.exit()["why"].as_str().unwrap_or_default().to_owned();
            why.contains("queries for names get no answer")
        });
        // The first one does not answer.
        named.resolver("nameserver 127.0.0.1\nnameserver 2001:db8:2::80\n");
        wait_until(PATIENCE, "the second one", || named.gets([192, 0, 2, 2]));
        // Private networks are the concern of each node itself.
        for name in ["nas.home.weft", "laptop.fips"] {
            let answer = by_udp(named.net.laptop.host(), named.at[0], name);
            assert_eq!(answer, Some((RCODE::NameError, None)), "{name}");
        }
        drop(named.net.warnings());
    });
}

#[test]
fn an_exit_answers_those_alone_that_may_use_it() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let named = Named::start();
        let (laptop, nas) = (named.net.laptop.host(), named.net.nas.host());
        let _server = Server::start(nas, "127.0.0.1", [192, 0, 2, 1]);
        named.resolver("nameserver 127.0.0.1\n");
        wait_until(PATIENCE, "names", || named.gets([192, 0, 2, 1]));
        // A neighbour of the exit sends to its addresses in the mesh.
        let printer = named.net.host("printer");
        run(
            printer,
            "ip",
            &["route", "replace", "10.44.0.0/16", "via", "192.168.9.1"],
        );
        assert_strict!(by_udp(printer, named.at[0], NAME).is_none(), "a neighbour");
        assert_strict!(by_tcp(printer, named.at[0], NAME).is_none(), "a neighbour");
        // The rule for the exit is enough for names.
        done(&named.net.nas, &["rule", "add", "allow from laptop to exit"]);
        done(&named.net.nas, &["rule", "default", "deny"]);
        wait_until(PATIENCE, "the rules hold", || {
            named
                .net
                .laptop
                .attempt(&["ping", "nas", "-c", "1"], PATIENCE)
                .is_ok_and(|ping| !ping.status.success())
        });
        assert!(named.gets([192, 0, 2, 1]) && named.net.passes());
        done(
            &named.net.nas,
            &["rule", "add", "deny from laptop to exit udp/53", "--at", "1"],
        );
        wait_until(PATIENCE, "the query is denied", || {
            by_udp(laptop, named.at[0], NAME).is_none()
        });
        assert!(by_tcp(laptop, named.at[1], NAME).is_some() && named.net.passes());
        done(&named.net.nas, &["rule", "default", "allow"]);
        done(
            &named.net.nas,
            &["rule", "add", "deny from laptop to exit", "--at", "1"],
        );
        wait_until(PATIENCE, "the exit is denied", || !named.net.passes());
        assert_strict!(by_udp(laptop, named.at[1], NAME).is_none(), "a denied exit");
        assert_strict!(by_tcp(laptop, named.at[0], NAME).is_none(), "a denied exit");
        done(&named.net.nas, &["rule", "remove", "1"]);
        wait_until(PATIENCE, "the TCP query passes", || {
            by_tcp(laptop, named.at[0], NAME).is_some()
        });
        // An exit that ends does not answer.
        done(&named.net.nas, &["set", "--advertise-exit=false"]);
        wait_until(PATIENCE, "the port is closed", || {
            by_tcp(laptop, named.at[0], NAME).is_none()
        });
        let open = run(nas, "ss", &["-lntu"]);
        assert!(!open.contains(":7353"), "{open}");
        drop(named.net.warnings());
    });
}
