use proptest::prelude::*;

use super::*;

fn path(bytes: impl AsRef<[u8]>) -> RelPath {
    RelPath::new(bytes.as_ref()).unwrap()
}

#[test]
fn a_path_leads_below_its_folder_and_nowhere_else() {
    for (bytes, error) in [
        ("", NameError::Empty),
        ("/a", NameError::Absolute),
        ("/", NameError::Absolute),
        ("a//b", NameError::EmptyComponent),
        ("a/", NameError::EmptyComponent),
        (".", NameError::Dots),
        ("..", NameError::Dots),
        ("a/../b", NameError::Dots),
        ("a/.", NameError::Dots),
        ("a\0b", NameError::Nul),
        (".weft-part-1", NameError::Staged),
        (".weft-part-/a", NameError::Staged),
    ] {
        assert_eq!(RelPath::new(bytes.as_bytes()), Err(error), "{bytes}");
    }
    for bytes in ["a", "...", "a/..b", ".a", " ", "a/.weft-part-1", ".weft-part"] {
        assert_eq!(path(bytes).as_bytes(), bytes.as_bytes());
    }
    assert!(RelPath::new(b"\xff\n/\x01").is_ok());
}

#[test]
fn a_path_is_as_long_as_the_system_takes() {
    let name = "n".repeat(256);
    assert_eq!(RelPath::new(name.as_bytes()), Err(NameError::LongName));
    assert!(RelPath::new(&name.as_bytes()[1..]).is_ok());
    let long = format!("{}x", "nnn/".repeat(1024));
    assert_eq!(RelPath::new(long.as_bytes()), Err(NameError::LongPath));
    let deep = format!("{}x", "n/".repeat(256));
    assert_eq!(RelPath::new(deep.as_bytes()), Err(NameError::Deep));
    assert!(RelPath::new(&deep.as_bytes()[2..]).is_ok());
    let longest = format!("{}{}", format!("{}/", "n".repeat(255)).repeat(15), "n".repeat(255));
    assert_eq!(path(&longest).as_bytes().len(), 4095);
    assert_eq!(path(&longest).join(b"a"), Err(NameError::LongPath));
}

#[test]
fn the_parts_of_a_path_are_those_between_slashes() {
    let deep = path("a/b/c");
    assert_eq!(deep.components().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    assert_eq!((deep.first(), deep.name()), (&b"a"[..], &b"c"[..]));
    assert_eq!(deep.parent(), Some(path("a/b")));
    assert_eq!(deep.below_first(), Some(path("b/c")));
    assert_eq!((path("a").parent(), path("a").below_first()), (None, None));
    assert_eq!(path("a").join(b"b").unwrap().join_all(&path("c")), Ok(deep));
    assert_eq!(path("a").join(b"b/c"), Err(NameError::Slash));
    assert_eq!(path("a").join(b".."), Err(NameError::Dots));
    let staged = RelPath::own(b".weft-part-1").unwrap();
    assert_eq!(staged.join(b"tree").unwrap().as_bytes(), b".weft-part-1/tree");
}

#[test]
fn a_folder_comes_directly_before_what_is_in_it() {
    let mut paths = ["a-b", "a/c", "a", "a/b/z", "a0", "a/b"].map(path);
    paths.sort();
    assert_eq!(paths, ["a", "a/b", "a/b/z", "a/c", "a-b", "a0"].map(path));
}

#[test]
fn a_path_in_json_is_what_it_was() {
    for bytes in [&b"a/b"[..], b"a/\xff\x01"] {
        let json = serde_json::to_string(&path(bytes)).unwrap();
        assert_eq!(serde_json::from_str::<RelPath>(&json).unwrap(), path(bytes));
    }
    assert!(serde_json::from_str::<RelPath>("\"a/../b\"").is_err());
}

#[test]
fn a_name_that_is_shown_changes_no_terminal() {
    assert_eq!(display("Größe 1.txt 👩‍🚀".as_bytes()), "Größe 1.txt 👩‍🚀");
    assert_eq!(display(b"a\n\x1b[2J\x7f"), "a\\x0a\\x1b[2J\\x7f");
    assert_eq!(display(b"\xffa\xc3"), "\\xffa\\xc3");
    assert_eq!(
        display("txt.\u{202e}exe\u{85}\u{2066}".as_bytes()),
        "txt.\\u{202e}exe\\u{85}\\u{2066}"
    );
    assert_eq!(path("a\r/b").display(), "a\\x0d/b");
}

#[test]
fn a_number_goes_before_the_extension() {
    for (name, other) in [
        ("photo.jpg", "photo (2).jpg"),
        ("a.tar.gz", "a (2).tar.gz"),
        ("a.TAR.zst", "a (2).TAR.zst"),
        (".tar.gz", ".tar (2).gz"),
        ("notes", "notes (2)"),
        (".bashrc", ".bashrc (2)"),
        ("Mr. Smith", "Mr. Smith (2)"),
        ("end.", "end. (2)"),
        ("a.b.c", "a.b (2).c"),
        ("a.this-is-no-extension", "a.this-is-no-extension (2)"),
    ] {
        assert_eq!(display(&numbered(name.as_bytes(), 2)), other);
    }
    let long = format!("{}.jpg", "ü".repeat(125));
    let other = numbered(long.as_bytes(), 17);
    assert_eq!(other, format!("{} (17).jpg", "ü".repeat(123)).into_bytes());
    assert_eq!(numbered(&[0xff; 255], 3).len(), 255);
}

#[test]
fn a_link_that_may_lead_out_is_not_inside() {
    for (link, target) in [
        ("a/b", "c"),
        ("a/b", "."),
        ("a/b", "./c//d/"),
        ("a/b/c", "../d"),
        ("a/b/c", ".."),
        ("a", "b"),
        ("a", "..."),
    ] {
        assert!(link_stays_inside(&path(link), target.as_bytes()), "{link} -> {target}");
    }
    for (link, target) in [
        ("a/b", ".."),
        ("a/b", "../a/c"),
        ("a/b", "/a"),
        ("a/b", ""),
        ("a/b", "c\0"),
        ("a/b/c", "../../x"),
        ("a/b/c", "./../../x"),
        ("a", ".."),
        ("a", "../a"),
        // `l` may be a link to the folder `a` itself.
        ("a/b/c", "l/../../x"),
        ("a/b/c", "l/.."),
    ] {
        assert!(!link_stays_inside(&path(link), target.as_bytes()), "{link} -> {target}");
    }
    assert!(!link_stays_inside(&path("a/b"), &[b'n'; 4096]));
}

proptest! {
    #[test]
    fn a_path_of_any_bytes_has_no_step_upwards(bytes in "[./a\0]{0,12}") {
        if let Ok(path) = RelPath::new(bytes.as_bytes()) {
            prop_assert!(path.components().all(|name| !name.is_empty() && name != b"." && name != b".."));
            prop_assert!(!bytes.contains('\0') && !bytes.starts_with('/'));
        }
    }

    #[test]
    fn a_numbered_name_is_a_name(name in prop::collection::vec(any::<u8>(), 1..=255), n: u32) {
        if let Ok(one) = RelPath::own(&name) && one.components().count() == 1 {
            let other = numbered(&name, n);
            prop_assert!(RelPath::own(&other).is_ok() && other != name);
            prop_assert!(std::str::from_utf8(&name).is_err() || std::str::from_utf8(&other).is_ok());
        }
    }

    #[test]
    fn a_shown_name_has_no_controls(name in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert!(display(&name).chars().all(|character| !character.is_control()));
    }
}
