//! The cache file: round trip, and each way in which it can be wrong.

use super::*;
use crate::choose::DeviceKind;

fn info(driver_version: u32) -> DeviceInfo {
    DeviceInfo {
        name: "a device".to_owned(),
        kind: DeviceKind::Discrete,
        driver_id: 1,
        driver_name: "a driver".to_owned(),
        driver_info: "1.2.3".to_owned(),
        driver_version,
        api_version: 0,
        uuid: [7; 16],
        vendor_id: 1,
        device_id: 2,
        memory_bytes: 3,
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = env::temp_dir().join(format!("oa-vk-{name}-{}", std::process::id()));
        let _absent = fs::remove_dir_all(&folder);
        Folder(folder)
    }

    fn cache(&self, driver_version: u32) -> DiskCache {
        DiskCache::new(&info(driver_version), Some(&self.0))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_stored_is_loaded() {
    let folder = Folder::new("store");
    let cache = folder.cache(1);
    assert!(cache.load().is_empty());
    assert!(cache.store(b"driver data"));
    assert_eq!(cache.load(), b"driver data");
    assert!(cache.store(b""));
    assert!(cache.load().is_empty());
    let left: Vec<_> = fs::read_dir(&folder.0).expect("it was written").collect();
    assert_eq!(left.len(), 1, "no temporary file stays");
    assert!(folder.cache(2).load().is_empty(), "another driver has another file");
}

#[test]
fn devices_that_share_a_uuid_share_no_file() {
    let folder = Folder::new("widths");
    let cache = |bits: u32| {
        let name = format!("llvmpipe (LLVM 15.0.6, {bits} bits)");
        DiskCache::new(&DeviceInfo { name, ..info(1) }, Some(&folder.0))
    };
    assert!(cache(256).store(b"code for eight lanes"));
    assert!(cache(128).load().is_empty());
    assert_eq!(cache(256).load(), b"code for eight lanes");
}

#[test]
fn each_damage_is_named() {
    let folder = Folder::new("damage");
    let cache = folder.cache(1);
    let good = cache.encode(b"driver data");
    assert_eq!(cache.decode(&good), Ok(&b"driver data"[..]));
    let damage = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        cache.decode(&bytes).map(<[u8]>::to_vec)
    };
    assert_eq!(damage(0), Err(BadCache::Magic));
    assert_eq!(damage(8), Err(BadCache::Device));
    assert_eq!(damage(24), Err(BadCache::Device));
    assert_eq!(damage(40), Err(BadCache::Length));
    assert_eq!(damage(48), Err(BadCache::Checksum));
    assert_eq!(damage(good.len() - 1), Err(BadCache::Checksum));
    for len in 0..good.len() {
        assert!(cache.decode(&good[..len]).is_err(), "cut to {len} B");
    }
    let longer = [&good[..], b"x"].concat();
    assert_eq!(cache.decode(&longer), Err(BadCache::Length));
}

#[test]
fn a_bad_file_is_deleted() {
    let folder = Folder::new("delete");
    let cache = folder.cache(1);
    assert!(cache.store(b"driver data"));
    let path = cache.path().expect("a folder was given");
    let mut bytes = fs::read(&path).expect("it was written");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).expect("the folder can be written");
    assert!(cache.load().is_empty());
    assert!(!path.exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_no_error() {
    let folder = Folder::new("unwritable");
    fs::create_dir_all(&folder.0).expect("temporary folders can be made");
    let file = folder.0.join("a file, not a folder");
    fs::write(&file, b"").expect("the folder can be written");
    let cache = DiskCache::new(&info(1), Some(&file));
    assert!(!cache.store(b"driver data"));
    assert!(cache.load().is_empty());
}
