#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::fs;
use std::path::Path;

use super::*;
use crate::audience::Party;

fn service(name: &str, target: &str, port: Option<u16>) -> Service {
    Service {
        name: name.to_owned(),
        target: target.parse().unwrap(),
        port,
        to: Audience(vec![Party::Tag("family".to_owned())]),
    }
}

fn forward(local: &str) -> Forward {
    Forward {
        local: local.parse().unwrap(),
        peer: "nas".to_owned(),
        npub: Some("npub1x".to_owned()),
        user: None,
        service: "web".to_owned(),
    }
}

#[test]
fn services_and_forwards_survive() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("services.json");
    let mut all = Services::load(&path).unwrap();
    assert_eq!(all, Services::default());
    all.serve(service("web", "8080", Some(8080))).unwrap();
    all.serve(service("db", "/run/db", None)).unwrap();
    all.forward(forward("5432")).unwrap();
    all.forward(forward("/run/here")).unwrap();
    all.save(&path).unwrap();
    assert_eq!(Services::load(&path).unwrap(), all);
    all.unserve("web").unwrap();
    all.unforward(&Local::Port(5432)).unwrap();
    assert_eq!((all.services.len(), all.forwards.len()), (1, 1));
    assert!(all.unserve("web").unwrap_err().to_string().contains("web"));
    assert!(all.unforward(&Local::Port(5432)).is_err());
}

#[test]
fn an_unusable_list_is_named_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("services.json");
    fs::write(&path, "{\"schema\":\"weft.transfer-services/2\"}").unwrap();
    let error = Services::load(&path).unwrap_err().to_string();
    assert!(error.contains("services.json") && error.contains("/2"), "{error}");
    assert!(Services::default().save(Path::new("/proc/none/services.json")).is_err());
}

#[test]
fn targets_are_of_this_machine() {
    for (text, shown, name, port) in [
        ("8080", "127.0.0.1:8080", "8080", Some(8080)),
        ("127.0.0.53:53", "127.0.0.53:53", "53", Some(53)),
        ("[::1]:80", "[::1]:80", "80", Some(80)),
        ("/run/a.sock", "/run/a.sock", "a.sock", None),
    ] {
        let target: Target = text.parse().unwrap();
        assert_eq!(target.to_string(), shown);
        assert_eq!(target.defaults().unwrap(), (name.to_owned(), port));
    }
    for text in ["", "web", "80800", "localhost:80", ":80", "fd00::1:80"] {
        assert!(text.parse::<Target>().is_err(), "{text}");
    }
    let long = format!("/{}", "x".repeat(108));
    for (text, words) in [
        ("192.0.2.1:80", "not on the loopback"),
        ("0.0.0.0:80", "not on the loopback"),
        ("[::]:80", "not on the loopback"),
        ("[::ffff:127.0.0.1]:80", "not on the loopback"),
        ("0", "port 0"),
        ("run/x", "absolute"),
        (&*long, "107 bytes"),
    ] {
        let error = text.parse::<Target>().unwrap().defaults().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn names_and_places_are_taken_once() {
    let mut all = Services::default();
    all.serve(service("web", "8080", Some(8080))).unwrap();
    for (one, words) in [
        (service("web", "8081", Some(8081)), "exists already"),
        (service("other", "8081", Some(8080)), "service web has port 8080"),
        (service("a b", "1", None), "no name of a service"),
        (service("", "1", None), "no name of a service"),
        (service(&"x".repeat(65), "1", None), "no name of a service"),
        (service("x", "192.0.2.1:1", None), "loopback"),
        (service("x", "1", Some(0)), "port 0"),
    ] {
        let error = all.serve(one).unwrap_err().to_string();
        assert!(error.contains(words) && error.lines().count() == 1, "{error}");
    }
    all.forward(forward("5432")).unwrap();
    for (one, words) in [
        (forward("5432"), "forwarded already"),
        (forward("0"), "choose a port"),
        (forward("x/y"), "absolute"),
    ] {
        assert!(all.forward(one).unwrap_err().to_string().contains(words));
    }
    assert!("5432x".parse::<Local>().is_err());
}

#[test]
fn the_lists_have_a_bound() {
    let mut all = Services::default();
    let more = (0..).map(|at| all.serve(service(&at.to_string(), "1", None)).is_ok());
    assert_eq!(more.take_while(|done| *done).count(), MAX_SERVICES);
    let more = (1..).map(|at| all.forward(forward(&at.to_string())).is_ok());
    assert_eq!(more.take_while(|done| *done).count(), MAX_FORWARDS);
    let mut all = Services::default();
    let to = Audience(vec![Party::Tag("x".to_owned()); MAX_PARTIES + 1]);
    let error = all
        .serve(Service {
            to,
            ..service("a", "1", None)
        })
        .unwrap_err();
    assert!(error.to_string().contains("give a tag"), "{error}");
}
