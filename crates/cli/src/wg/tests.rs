use super::*;

fn added() -> GuestAdded {
    GuestAdded {
        schema: String::new(),
        network: Some("home".to_owned()),
        name: "phone".to_owned(),
        ipv4: Ipv4Addr::new(10, 44, 7, 9),
        host_key: PrivateKey::from_bytes([1; 32]).public().to_string(),
        endpoints: vec!["203.0.113.7:51820".parse().unwrap()],
        local_only: false,
        allowed_ips: vec!["10.44.0.0/16".to_owned(), "192.168.7.0/24".to_owned()],
        mtu: 1_420,
        file: None,
    }
}

#[test]
fn the_file_is_one_of_wg_quick_with_all_that_a_device_needs() {
    let private = PrivateKey::from_bytes([2; 32]);
    let key = GuestKey::Made(private.clone());
    let text = file_text(&added(), (&key, Some(PresharedKey::from_bytes([3; 32]))), None, 25).unwrap();
    let file = File::read(&text).unwrap();
    assert_eq!(file.interface.private_key.public(), private.public());
    assert_eq!(file.interface.addresses, [("10.44.7.9".parse().unwrap(), 32)]);
    assert_eq!(file.interface.mtu, Some(1_420));
    let peer = &file.peers[0];
    assert_eq!(peer.public_key, PrivateKey::from_bytes([1; 32]).public());
    assert_eq!(peer.endpoint.as_ref().unwrap().to_string(), "203.0.113.7:51820");
    assert_eq!(peer.allowed_ips.len(), 2);
    assert!(peer.preshared_key.is_some() && peer.keepalive == Some(25));
}

#[test]
fn a_wanted_endpoint_has_the_port_of_this_machine() {
    let key = GuestKey::Made(PrivateKey::from_bytes([2; 32]));
    for (wanted, expected) in [
        ("vpn.example.org", "vpn.example.org:51820"),
        ("vpn.example.org:7", "vpn.example.org:7"),
        ("2001:db8::1", "[2001:db8::1]:51820"),
        ("[2001:db8::1]:9", "[2001:db8::1]:9"),
        ("198.51.100.1", "198.51.100.1:51820"),
        ("192.168.7.5", "192.168.7.5:51820"),
    ] {
        let wanted = Wanted::read(wanted).ok();
        let text = file_text(&added(), (&key, None), wanted, 0).unwrap();
        let peer = &File::read(&text).unwrap().peers[0];
        assert_eq!(peer.endpoint.as_ref().unwrap().to_string(), expected);
        assert!(peer.keepalive.is_none() && peer.preshared_key.is_none());
        let within = expected.starts_with("192.168.7.");
        assert_eq!(
            peer.allowed_ips.len(),
            if within { 1 } else { 2 },
            "the tunnel is not led into itself"
        );
    }
    for bad in ["", "vpn example", "1.2.3.4:0", "-x", "1.2.3.400"] {
        assert!(Wanted::read(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_key_of_the_device_stays_where_it_is() {
    let public = PrivateKey::from_bytes([2; 32]).public();
    let text = file_text(&added(), (&GuestKey::Brought(public), None), None, 25).unwrap();
    assert!(text.contains(&format!("PrivateKey of {public}")), "{}", *text);
    assert!(!text.contains("\nPrivateKey"), "{}", *text);
}
