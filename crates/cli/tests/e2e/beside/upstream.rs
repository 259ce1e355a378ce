//! The server for names that are none of weft's, on a host of its own.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use simple_dns::rdata::{A, PTR, RData, TXT};
use simple_dns::{CLASS, Name, Packet, PacketFlag, RCODE, ResourceRecord, TYPE};
use weft_lab::host::Host;
use weft_lab::world::{Switch, World};

use crate::common::machine::Machine;

/// Its addresses.
const UPSTREAMS: [&str; 2] = ["192.0.2.53", "192.0.2.54"];
/// The address of `www.example`.
pub(super) const WWW: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

/// The server for other names, on a host of its own.
pub(super) struct Upstream {
    _host: Host,
    pub asked: Arc<Mutex<Vec<String>>>,
    pub by_tcp: Arc<AtomicUsize>,
    dynamic: Dynamic,
}

/// Addresses of names that change, with a TTL of 1 s.
type Dynamic = Arc<Mutex<BTreeMap<String, Ipv4Addr>>>;

/// The response of the upstream server. A response with `big.example` does not fit into 512 bytes.
fn upstream_answer(bytes: &[u8], tcp: bool, asked: &Mutex<Vec<String>>, dynamic: &Dynamic) -> Vec<u8> {
    let request = Packet::parse(bytes).unwrap();
    let question = request.questions[0].clone().into_owned();
    let name = question.qname.to_string().to_lowercase();
    asked.lock().unwrap().push(name.clone());
    let is = |rtype: TYPE| question.qtype == rtype.into();
    let mut response = Packet::new_reply(request.id());
    response.set_flags(PacketFlag::RECURSION_AVAILABLE);
    let mut answer = |data: RData<'static>| {
        let name = question.qname.clone();
        response.answers.push(ResourceRecord::new(name, CLASS::IN, 60, data));
    };
    match &*name {
        "www.example" if is(TYPE::A) => answer(RData::A(A { address: WWW.into() })),
        "www.example" => {}
        "7.100.51.198.in-addr.arpa" => answer(RData::PTR(PTR(Name::new_unchecked("www.example")))),
        "big.example" if tcp => {
            for _ in 0..30 {
                answer(RData::TXT(
                    TXT::new().with_string(&"x".repeat(200)).unwrap().into_owned(),
                ));
            }
        }
        "big.example" => response.set_flags(PacketFlag::TRUNCATION),
        name => match dynamic.lock().unwrap().get(name) {
            Some(ip) if is(TYPE::A) => {
                let data = RData::A(A { address: (*ip).into() });
                let name = question.qname.clone();
                response.answers.push(ResourceRecord::new(name, CLASS::IN, 1, data));
            }
            Some(_) => {}
            None => *response.rcode_mut() = RCODE::NameError,
        },
    }
    response.questions.push(question);
    response.build_bytes_vec().unwrap()
}

impl Upstream {
    /// Starts it on a new host `dns` of the switch.
    pub(super) fn start(world: &World, switch: &Switch) -> Self {
        use std::io::{Read as _, Write as _};
        let host = world.host("dns").unwrap();
        switch
            .connect(
                &host,
                &UPSTREAMS.map(|ip| format!("{ip}/24")).each_ref().map(String::as_str),
            )
            .unwrap();
        let (asked, by_tcp) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let dynamic = Dynamic::default();
        for ip in UPSTREAMS {
            let at: SocketAddr = format!("{ip}:53").parse().unwrap();
            let (udp, tcp) = host
                .run(|| (UdpSocket::bind(at).unwrap(), TcpListener::bind(at).unwrap()))
                .unwrap();
            let (names, addresses) = (Arc::clone(&asked), Arc::clone(&dynamic));
            thread::spawn(move || {
                let mut bytes = [0; 1500];
                while let Ok((len, from)) = udp.recv_from(&mut bytes) {
                    let _ = udp.send_to(&upstream_answer(&bytes[..len], false, &names, &addresses), from);
                }
            });
            let (names, count) = (Arc::clone(&asked), Arc::clone(&by_tcp));
            let addresses = Arc::clone(&dynamic);
            thread::spawn(move || {
                for stream in tcp.incoming() {
                    let mut stream = stream.unwrap();
                    let mut len = [0; 2];
                    if stream.read_exact(&mut len).is_err() {
                        continue;
                    }
                    let mut bytes = vec![0; usize::from(u16::from_be_bytes(len))];
                    stream.read_exact(&mut bytes).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                    let response = upstream_answer(&bytes, true, &names, &addresses);
                    let len = u16::try_from(response.len()).unwrap().to_be_bytes();
                    stream.write_all(&[&len[..], &response].concat()).unwrap();
                }
            });
        }
        Self {
            _host: host,
            asked,
            by_tcp,
            dynamic,
        }
    }

    /// Sets the IPv4 address of a name.
    pub(super) fn set(&self, name: &str, address: Ipv4Addr) {
        self.dynamic.lock().unwrap().insert(name.to_owned(), address);
    }

    /// Whether a query for a name has come.
    pub(super) fn was_asked(&self, name: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|asked| asked == name)
    }
}

/// What programs of a machine get for names and addresses that are none of weft's.
pub(super) fn others(machine: &Machine) -> Vec<Vec<String>> {
    [
        ("ahostsv4", "www.example"),
        ("ahostsv6", "www.example"),
        ("hosts", "198.51.100.7"),
        ("ahostsv4", "missing.example"),
        ("ahostsv4", "localhost"),
        ("hosts", "fd00::1"),
    ]
    .map(|(database, name)| machine.look_up(database, name))
    .to_vec()
}
