//! `expect = "name"`: what a node answers for a name, and whether the address behind it answers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::Value;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, Question, TYPE};

use super::expect::{Finding, LEAST, LookError, POLL, echo};
use super::expected::ExpectName;
use super::topology::{Stage, StageError};
use crate::daemon::DaemonError;

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(1);
const QUERY_ID: u16 = 0x57ef;

/// Checks the AAAA and A records of a name, and sends an echo to what it stands for.
pub(super) fn name(stage: &Stage, expect: &ExpectName) -> Result<Finding, LookError> {
    let start = Instant::now();
    let mesh = stage.node(&expect.to)?.identity.address;
    loop {
        let inside = networks(stage, &expect.to)?;
        let found = [query(stage, expect, TYPE::AAAA)?, query(stage, expect, TYPE::A)?];
        let resolves = match found {
            [Some(IpAddr::V6(v6)), Some(IpAddr::V4(v4))] => v6 == mesh && inside.contains(&v4),
            _ => false,
        };
        let holds = resolves && echo(stage, &expect.on, mesh, LEAST, ANSWER)?;
        if holds || start.elapsed() >= expect.within.0 {
            let [v6, v4] = found.map(|found| found.map_or_else(|| "nothing".to_owned(), |address| address.to_string()));
            let answers = match (holds, resolves) {
                (true, _) => ", and answers",
                (false, true) => ", which does not answer",
                (false, false) => "",
            };
            let wanted = format!("{inside:?} and {mesh}");
            return Ok(Finding::new(holds, format!("{v4} and {v6}{answers}"), wanted));
        }
        std::thread::sleep(POLL);
    }
}

/// The IPv4 addresses of a node in its networks.
fn networks(stage: &Stage, node: &str) -> Result<Vec<Ipv4Addr>, LookError> {
    let output = stage.daemon(node)?.command(&["networks", "--json"]);
    let output = output.map_err(StageError::Daemon)?;
    let list: Value = serde_json::from_slice(&output.stdout).map_err(|source| {
        StageError::Daemon(DaemonError::Answer {
            command: "networks --json".to_owned(),
            source,
        })
    })?;
    let networks = list["networks"].as_array().into_iter().flatten();
    Ok(networks
        .filter_map(|network| network["ipv4"].as_str()?.parse().ok())
        .collect())
}

/// Asks the daemon of a node, on its host, for the address of a name.
fn query(stage: &Stage, expect: &ExpectName, of: TYPE) -> Result<Option<IpAddr>, LookError> {
    let daemon = stage.daemon(&expect.on)?;
    let status = daemon.status().map_err(StageError::Daemon)?;
    let server = status["node"]["dns"]["listen"][0]
        .as_str()
        .and_then(|text| text.parse().ok());
    let server: SocketAddr = server.ok_or_else(|| LookError::Status(expect.on.clone()))?;
    let asked = daemon.host().run(|| exchange(server, &expect.resolves, of))?;
    asked.map_err(|source| LookError::Query {
        name: expect.resolves.clone(),
        server,
        source,
    })
}

fn exchange(server: SocketAddr, name: &str, of: TYPE) -> io::Result<Option<IpAddr>> {
    let mut packet = Packet::new_query(QUERY_ID);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).map_err(io::Error::other)?;
    let question = Question::new(name, QTYPE::TYPE(of), CLASS::IN.into(), false);
    packet.questions.push(question);
    let query = packet.build_bytes_vec().map_err(io::Error::other)?;
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.connect(server)?;
    socket.send(&query)?;
    let mut answer = [0; 512];
    let len = socket.recv(&mut answer)?;
    let answer = Packet::parse(answer.get(..len).unwrap_or_default()).map_err(io::Error::other)?;
    if answer.id() != QUERY_ID {
        return Err(io::Error::other("an answer to another query"));
    }
    let mut addresses = answer.answers.iter().filter_map(|record| match &record.rdata {
        RData::AAAA(aaaa) => Some(IpAddr::V6(aaaa.address.into())),
        RData::A(a) => Some(IpAddr::V4(a.address.into())),
        _ => None,
    });
    Ok(addresses.next())
}
