//! Services of one machine at another with the real binary: by name, at the mesh address, for those who may.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;

use super::join::{Net, code, done, ipv4, members};
use super::transfer::{User, content, two};
use crate::common::{PATIENCE, beside, wait_until};

/// Bytes that pass in each direction.
const MANY: u64 = 6 << 20;

/// What a service at the loopback of a host answers: all that comes, after that has ended.
fn echo(host: &Host, port: u16) {
    let listener = host.run(|| TcpListener::bind(("127.0.0.1", port)).unwrap()).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut all = Vec::new();
                if stream.read_to_end(&mut all).is_ok() {
                    let _ = stream.write_all(&all);
                }
            });
        }
    });
}

/// Sends bytes, ends that direction, and returns what comes.
fn ask(mut stream: TcpStream, bytes: &[u8]) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut writer = stream.try_clone()?;
    thread::scope(|scope| {
        scope.spawn(move || {
            // What is not taken is seen in the answer.
            let _ = writer.write_all(bytes);
            let _ = writer.shutdown(Shutdown::Write);
        });
        let mut all = Vec::new();
        stream.read_to_end(&mut all)?;
        Ok(all)
    })
}

fn connect(host: &Host, to: &str) -> io::Result<TcpStream> {
    let to: SocketAddr = to.parse().unwrap();
    host.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(10)))
        .unwrap()
}

/// Whether bytes come back from an address.
fn is_served(host: &Host, to: &str) -> bool {
    connect(host, to).is_ok_and(|stream| ask(stream, b"hello").is_ok_and(|all| all == b"hello"))
}

fn list(user: &User<'_>) -> Value {
    serde_json::from_str(&user.done(&["serve", "--json"])).unwrap()
}

/// Waits until the only forward of a user is up, or down.
fn forward_is(user: &User<'_>, up: bool) -> Value {
    let mut last = Value::Null;
    wait_until(
        PATIENCE,
        if up { "the forward is up" } else { "the forward is down" },
        || {
            last = list(user)["forwards"][0].clone();
            last["up"] == up
        },
    );
    last
}

#[test]
fn services_are_reached_by_name_and_at_the_mesh_address() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let nodes = two(&net);
        let [desk, nas] = nodes.map(User::start);
        let [desk_host, nas_host] = nodes.map(Daemon::host);
        echo(nas_host, 8080);
        let said = nas.done(&["serve", "8080", "--name", "web"]);
        assert!(said.contains("127.0.0.1:8080 is served to members"), "{said}");
        let at = list(&nas)["services"][0]["at"].clone();
        let at: Vec<&str> = at.as_array().unwrap().iter().map(|at| at.as_str().unwrap()).collect();
        assert_eq!(at.len(), 2, "IPv6 and IPv4: {at:?}");
        assert!(at.contains(&&*format!("{}:8080", ipv4(nodes[1]))), "{at:?}");
        let bytes = content(MANY, 7);
        for at in at {
            assert_eq!(ask(connect(desk_host, at).unwrap(), &bytes).unwrap(), bytes, "{at}");
        }
        // A socket of the other node, and one of this.
        let socket = nas.folder.join("db");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut other = stream.try_clone().unwrap();
                    let _ = io::copy(&mut stream, &mut other);
                    let _ = other.shutdown(Shutdown::Write);
                });
            }
        });
        nas.done(&["serve", socket.to_str().unwrap()]);
        let here = desk.folder.join("db");
        desk.done(&["forward", here.to_str().unwrap(), "nas:db"]);
        forward_is(&desk, true);
        desk.done(&["forward", "9000", "nas:web"]);
        for to in ["127.0.0.1:9000", "[::1]:9000"] {
            assert_eq!(ask(connect(desk_host, to).unwrap(), &bytes).unwrap(), bytes, "{to}");
        }
        let mut stream = UnixStream::connect(&here).unwrap();
        let mut writer = stream.try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                writer.write_all(&bytes).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            assert_eq!(all, bytes);
        });
        // Removal ends what is under way.
        let stays = connect(desk_host, "127.0.0.1:9000").unwrap();
        let direct = connect(desk_host, &format!("{}:8080", ipv4(nodes[1]))).unwrap();
        wait_until(PATIENCE, "both are passed on", || {
            list(&nas)["services"][0]["connections"] == 2
        });
        nas.done(&["serve", "remove", "web"]);
        for mut stream in [stays, direct] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let ended = stream.read(&mut [0; 1]);
            assert!(
                !matches!(&ended, Ok(1)) && !matches!(&ended, Err(error) if error.kind() == io::ErrorKind::WouldBlock),
                "{ended:?}"
            );
        }
        let mut web = Value::Null;
        wait_until(PATIENCE, "the forward is down", || {
            web = list(&desk)["forwards"][1].clone();
            web["up"] == false
        });
        wait_until(PATIENCE, "it says why", || {
            let why = list(&desk)["forwards"][1]["why"].clone();
            why == "no such service, or not for this node"
        });
        desk.done(&["forward", "remove", here.to_str().unwrap()]);
        assert!(!here.exists());
        drop([desk, nas]);
        net.finish();
    });
}

#[test]
fn a_member_without_the_tag_has_no_service() {
    beside(|| {
        let net = Net::start(&["a", "b", "c"]);
        let [a, b, c] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "nas"]);
        for (node, name) in [(b, "desk"), (c, "cam")] {
            let code = code(a, &["--name", name]);
            done(node, &["join", &code]);
        }
        for node in [a, b, c] {
            wait_until(PATIENCE, "all know all", || members(node).len() == 3);
        }
        done(a, &["member", "tag", "desk", "family"]);
        let [nas, desk, cam] = [a, b, c].map(User::start);
        echo(a.host(), 8080);
        nas.done(&["serve", "8080", "--to", "tag:family"]);
        let at = format!("{}:8080", ipv4(a));
        wait_until(PATIENCE, "the tag is known", || is_served(b.host(), &at));
        assert!(!is_served(c.host(), &at));
        for user in [&desk, &cam] {
            user.done(&["forward", "9000", "nas:8080"]);
        }
        forward_is(&desk, true);
        assert!(is_served(b.host(), "127.0.0.1:9000"));
        let refused = forward_is(&cam, false);
        wait_until(PATIENCE, "it says why", || {
            list(&cam)["forwards"][0]["why"] == "no such service, or not for this node"
        });
        assert!(!is_served(c.host(), "127.0.0.1:9000"), "{refused}");
        // Without the tag it ends, although it was up.
        let mut stays = connect(b.host(), "127.0.0.1:9000").unwrap();
        let mut direct = connect(b.host(), &at).unwrap();
        wait_until(PATIENCE, "both are passed on", || {
            list(&nas)["services"][0]["connections"] == 2
        });
        done(a, &["member", "tag", "desk", "family", "--remove"]);
        for stream in [&mut stays, &mut direct] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let ended = stream.read(&mut [0; 1]);
            assert!(
                !matches!(&ended, Err(error) if error.kind() == io::ErrorKind::WouldBlock),
                "{ended:?}"
            );
        }
        forward_is(&desk, false);
        assert!(!is_served(b.host(), &at));
        drop([nas, desk, cam]);
        net.finish();
    });
}

#[test]
fn services_come_back_after_a_kill_at_either_end() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let nodes = two(&net);
        let [mut desk, mut nas] = nodes.map(User::start);
        let [desk_host, nas_host] = nodes.map(Daemon::host);
        nas.done(&["serve", "8080", "--name", "web"]);
        desk.done(&["forward", "9000", "nas:web"]);
        forward_is(&desk, true);
        // The service itself does not run.
        assert!(!is_served(desk_host, "127.0.0.1:9000"));
        let forward = list(&desk)["forwards"][0].clone();
        assert_eq!(forward["up"], true);
        let why = forward["why"].as_str().unwrap();
        assert_eq!(why, "the service there does not answer (connection refused)");
        echo(nas_host, 8080);
        assert!(is_served(desk_host, "127.0.0.1:9000"));
        assert_eq!(list(&desk)["forwards"][0]["why"], Value::Null);
        nas.kill();
        wait_until(PATIENCE, "the serving end is back", || {
            is_served(desk_host, "127.0.0.1:9000")
        });
        let at = format!("{}:8080", ipv4(nodes[1]));
        wait_until(PATIENCE, "the mesh address, too", || is_served(desk_host, &at));
        desk.kill();
        wait_until(PATIENCE, "the forward is back", || {
            is_served(desk_host, "127.0.0.1:9000")
        });
        forward_is(&desk, true);
        desk.failed(&["forward", "9000", "nas:web"]);
        desk.failed(&["forward", "9001", "zoe:web"]);
        desk.failed(&["serve", "remove", "web"]);
        drop([desk, nas]);
        net.finish();
    });
}
