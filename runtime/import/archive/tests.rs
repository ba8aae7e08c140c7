//! Archives made by hand, sound and hostile.

use super::*;
use crate::import::testing::{ZipEntry, zip};

fn open(entries: &[ZipEntry]) -> Result<Archive> {
    Archive::from_bytes(zip(entries).into())
}

fn reason(result: Result<Archive>) -> String {
    result.expect_err("must be refused").to_string()
}

#[test]
fn stored_entries_are_read_in_place() {
    let bytes: Arc<[u8]> = zip(&[ZipEntry::stored("p/a", b"alpha"), ZipEntry::stored("p/b", b"")]).into();
    let archive = Archive::from_bytes(bytes.clone()).unwrap();
    let content = archive.read(archive.find("p/a").unwrap()).unwrap();
    assert_eq!(&*content, b"alpha");
    assert!(matches!(content, Cow::Borrowed(_)));
    assert!(bytes.as_ptr_range().contains(&content.as_ptr()));
    assert_eq!(archive.names().collect::<Vec<_>>(), ["p/a", "p/b"]);
    assert!(archive.find("a").is_none());
}

#[test]
fn deflated_entries_are_inflated() {
    let text = b"abcabcabcabcabc".repeat(100);
    let archive = open(&[ZipEntry::deflated("p/a", &text)]).unwrap();
    let id = archive.find("p/a").unwrap();
    assert_eq!(archive.size_bytes(id), text.len());
    assert_eq!(*archive.read(id).unwrap(), *text);
}

#[test]
fn a_flipped_byte_is_an_error_on_use() {
    let mut bytes = zip(&[ZipEntry::stored("p/a", b"alpha"), ZipEntry::stored("p/b", b"beta")]);
    let at = bytes.windows(5).position(|w| w == b"alpha").unwrap();
    bytes[at + 2] ^= 1;
    let archive = Archive::from_bytes(bytes.into()).unwrap();
    let error = archive.read(archive.find("p/a").unwrap()).unwrap_err();
    assert!(error.to_string().contains("p/a: the content is corrupt"), "{error}");
    assert!(archive.read(archive.find("p/b").unwrap()).is_ok());
}

#[test]
fn names_are_plain_relative_paths() {
    let long = "n/".repeat(600);
    let bad: [&[u8]; 12] = [
        b"../a",
        b"p/../a",
        b"/a",
        b"p\\a",
        b"C:a",
        b"p/\0a",
        b"p//a",
        b"p/./a",
        b"",
        b"p/\xff",
        b"..",
        long.as_bytes(),
    ];
    for name in bad {
        let entry = ZipEntry { name: name.to_vec(), ..ZipEntry::stored("", b"x") };
        assert!(reason(open(&[entry])).contains("its name"), "{name:?}");
    }
}

#[test]
fn links_and_ciphers_are_refused() {
    let link = ZipEntry { external_attributes: 0o120777 << 16, ..ZipEntry::stored("p/a", b"x") };
    assert!(reason(open(&[link])).contains("symbolic link"));
    let cipher = ZipEntry { flags: 1, ..ZipEntry::stored("p/a", b"x") };
    assert!(reason(open(&[cipher])).contains("encrypted"));
    let method = ZipEntry { method: 14, ..ZipEntry::stored("p/a", b"x") };
    assert!(reason(open(&[method])).contains("compression method"));
}

#[test]
fn repeated_names_are_refused() {
    let twice = [ZipEntry::stored("p/a", b"x"), ZipEntry::stored("p/a", b"y")];
    assert!(reason(open(&twice)).contains("two entries"));
}

#[test]
fn sizes_must_hold() {
    let huge = 2_200_000_000;
    let stored = ZipEntry { size: huge, stored_size: huge, ..ZipEntry::stored("p/a", b"x") };
    assert!(reason(open(&[stored])).contains("beyond the file"));
    let unequal = ZipEntry { size: 2, ..ZipEntry::stored("p/a", b"x") };
    assert!(reason(open(&[unequal])).contains("two sizes"));
    let bomb = ZipEntry { size: huge, ..ZipEntry::deflated("p/a", b"x") };
    assert!(reason(open(&[bomb])).contains("the limit is"));
    let liar = ZipEntry { size: 1 << 20, ..ZipEntry::deflated("p/a", b"x") };
    assert!(reason(open(&[liar])).contains("cannot inflate"));
    let shorter = ZipEntry { size: 50, ..ZipEntry::deflated("p/a", &[7; 100]) };
    let archive = open(&[shorter]).unwrap();
    assert!(archive.read(archive.find("p/a").unwrap()).is_err());
    let longer = ZipEntry { size: 101, ..ZipEntry::deflated("p/a", &[7; 100]) };
    let archive = open(&[longer]).unwrap();
    assert!(archive.read(archive.find("p/a").unwrap()).is_err());
}

#[test]
fn the_local_header_must_agree() {
    let mut bytes = zip(&[ZipEntry::stored("p/a", b"x")]);
    bytes[32] = b'b';
    assert!(reason(Archive::from_bytes(bytes.into())).contains("local header differs"));
    let mut bytes = zip(&[ZipEntry::stored("p/a", b"x")]);
    bytes[18] = 0;
    assert!(reason(Archive::from_bytes(bytes.into())).contains("local header differs"));
}

#[test]
fn entries_must_not_overlap() {
    let a = ZipEntry::stored("p/a", b"0123456789");
    let inner = zip(&[ZipEntry::stored("p/b", b"z")]);
    let hidden = ZipEntry::stored("p/a", &inner);
    let alias = ZipEntry { local_offset: Some(33), omit_local: true, ..ZipEntry::stored("p/b", b"z") };
    assert!(reason(open(&[hidden, alias])).contains("overlaps"));
    let directory = ZipEntry { size: 60, stored_size: 60, ..a };
    assert!(reason(open(&[directory])).contains("overlaps the directory"));
}

#[test]
fn the_entry_count_must_hold() {
    let good = zip(&[ZipEntry::stored("p/a", b"x")]);
    for count in [0u16, 2, 65535] {
        let mut bytes = good.clone();
        let end = bytes.len();
        bytes[end - 14..end - 12].copy_from_slice(&count.to_le_bytes());
        bytes[end - 12..end - 10].copy_from_slice(&count.to_le_bytes());
        assert!(Archive::from_bytes(bytes.into()).is_err(), "{count}");
    }
}

#[test]
fn what_is_not_a_zip_says_so() {
    for bytes in [&b""[..], b"PK", b"ustar", &[0; 5000]] {
        assert!(reason(Archive::from_bytes(bytes.into())).contains("not a zip archive"));
    }
}
