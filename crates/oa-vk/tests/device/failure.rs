//! What goes wrong, and what is said about it.

use crate::lab::{ADD, CONSTANT, open, open_with, pipeline, request, zeros};
use oa_vk::{DeviceRequest, Error, Gpu, PipelineRequest, Validation, devices};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn open_error(request: &DeviceRequest) -> Error {
    Gpu::open(request).expect_err("it cannot be opened")
}

#[test]
fn a_missing_loader_says_what_to_install() {
    let library = Some(PathBuf::from("/nonexistent/libvulkan.so.1"));
    let error = open_error(&DeviceRequest { library, ..request() });
    let text = error.to_string();
    assert!(text.starts_with("no Vulkan loader: install libvulkan1"), "{text}");
    assert!(text.ends_with("tried /nonexistent/libvulkan.so.1"), "{text}");
    assert!(std::error::Error::source(&error).is_some(), "the linker's reason is kept");
}

#[test]
fn an_unknown_device_lists_those_there_are() {
    let reports = devices(&request()).expect("the devices");
    let off = DeviceRequest { validation: Validation::Off, ..request() };
    let selector = Some("no such device".to_owned());
    let error = open_error(&DeviceRequest { selector, ..off.clone() });
    let text = error.to_string();
    assert!(text.starts_with("no Vulkan device matches \"no such device\"; there are:"), "{text}");
    for report in reports {
        assert!(text.contains(&report.name().to_string()), "{text}");
        for selector in [report.info.uuid_text(), report.index.to_string()] {
            let selector = Some(selector);
            Gpu::open(&DeviceRequest { selector, ..off.clone() })
                .expect("each device can be named");
        }
    }
}

#[test]
fn devices_are_reported_with_their_capabilities() {
    let reports = devices(&request()).expect("the devices");
    assert!(!reports.is_empty());
    let gpu = open();
    let own = reports.iter().find(|report| report.index == gpu.report().index);
    let own = own.expect("the open device is listed");
    assert_eq!(own.info, *gpu.info());
    assert_eq!(own.capabilities, *gpu.capabilities());
    assert!(own.refused.is_empty());
    let limits = &own.capabilities.limits;
    assert!(limits.subgroup_size >= 1 && limits.subgroup_min <= limits.subgroup_max);
    assert!(limits.storage_range_bytes >= 128 << 20);
}

#[test]
fn abilities_and_limits_can_be_taken_away() {
    let mut clamp = oa_vk::Capabilities::floor().limits;
    clamp.groups = [7, 7, 7];
    let disable = oa_vk::Caps(u64::MAX);
    let gpu = open_with(DeviceRequest { clamp: Some(clamp), disable, ..request() });
    assert!(gpu.capabilities().caps.is_empty());
    assert_eq!(gpu.capabilities().limits.shared_bytes, 16 << 10);
    let kernel = pipeline(&gpu, &CONSTANT);
    let target = [zeros(&gpu, 64, "target")];
    let mut recorder = gpu.recorder("grid").expect("a recorder");
    let error = recorder.dispatch(&kernel, &target, &[1], [8, 1, 1], "wide").expect_err("a limit");
    let text = "\"wide\" needs 8 workgroups along one axis, the device allows 7";
    assert_eq!(error.to_string(), text);
}

/// Not a check by itself: what the tests below run in a process of its own.
#[test]
fn child_opens_the_device() {
    let outcome = Gpu::open(&DeviceRequest::from_env());
    println!("outcome: {}", outcome.map_or_else(|e| e.to_string(), |_| "opened".to_owned()));
}

fn child(variables: &[(&str, &str)]) -> String {
    let this = env::current_exe().expect("a test has a program");
    let mut command = Command::new(this);
    command.args(["--exact", "failure::child_opens_the_device", "--nocapture"]);
    for name in ["OA_DEVICE", "OA_VALIDATION", "OA_VULKAN_LIBRARY"] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let start = text.find("outcome: ").unwrap_or_else(|| panic!("{output:?}"));
    text[start + "outcome: ".len()..].to_owned()
}

#[test]
fn a_machine_without_drivers_says_so() {
    let none = "/nonexistent/driver.json";
    let text = child(&[("VK_DRIVER_FILES", none), ("VK_ICD_FILENAMES", none)]);
    assert!(text.starts_with("no Vulkan device: no driver is installed"), "{text}");
}

#[test]
fn validation_without_its_layer_is_an_error() {
    let text = child(&[("OA_VALIDATION", "1"), ("VK_LAYER_PATH", "/nonexistent")]);
    assert!(text.contains("VK_LAYER_KHRONOS_validation is not installed"), "{text}");
}

#[test]
fn the_environment_names_device_and_loader() {
    let text = child(&[("OA_VULKAN_LIBRARY", "/nonexistent/loader.so")]);
    assert!(text.starts_with("no Vulkan loader"), "{text}");
    let text = child(&[("OA_DEVICE", "no such device")]);
    assert!(text.starts_with("no Vulkan device matches"), "{text}");
    assert!(child(&[("OA_DEVICE", "0")]).starts_with("opened"));
}

#[test]
fn a_bad_cache_file_is_replaced() {
    let request = request();
    let gpu = open_with(request.clone());
    let path = gpu.pipeline_cache_path().expect("a folder was given");
    pipeline(&gpu, &CONSTANT);
    gpu.save_pipelines();
    let good = fs::read(&path).ok();
    drop(gpu);
    for bad in [&b""[..], b"OAPIPES1 but nothing more", &[0xa5; 5000]] {
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("a temporary folder");
        fs::write(&path, bad).expect("a temporary file");
        let gpu = open_with(request.clone());
        pipeline(&gpu, &CONSTANT);
        assert!(!path.exists(), "a bad file is deleted before the driver sees it");
        gpu.save_pipelines();
        assert_eq!(fs::read(&path).ok().map(|b| b.len()), good.as_ref().map(Vec::len));
    }
}

#[test]
fn bad_modules_and_large_requests_are_refused() {
    let gpu = open();
    let refuse =
        |request: PipelineRequest| gpu.pipeline(&request).expect_err("it is refused").to_string();
    let text = refuse(PipelineRequest { spirv: b"not a module", hash: "bad", ..ADD });
    assert_eq!(text, "\"add\" is no usable SPIR-V module: it is shorter than a header");
    let cut = &ADD.spirv[..ADD.spirv.len() - 8];
    let text = refuse(PipelineRequest { spirv: cut, hash: "cut", ..ADD });
    assert!(text.ends_with("it does not end with a function"), "{text}");
    let text = refuse(PipelineRequest { push_bytes: 4096, ..ADD });
    assert!(text.starts_with("\"add\" needs 4096 B of push constants"), "{text}");
    let text = refuse(PipelineRequest { buffers: u32::MAX, ..ADD });
    assert!(text.contains("storage buffers, the device allows"), "{text}");
    pipeline(&gpu, &ADD);
}

#[test]
fn the_sink_hears_a_missing_barrier() {
    let gpu = open();
    let (one, two) = (zeros(&gpu, 64, "one"), zeros(&gpu, 64, "two"));
    let mut recorder = gpu.recorder("race").expect("a recorder");
    recorder.copy(&one, &two);
    recorder.copy(&two, &one);
    gpu.submit(&recorder.finish().expect("a recording")).expect("a submission");
    let messages = gpu.validation_messages();
    let heard = messages.iter().any(|message| message.contains("SYNC-HAZARD"));
    assert_eq!(heard, gpu.checks_sync, "{messages:#?}");
    let kernel = pipeline(&gpu, &CONSTANT);
    let mut recorder = gpu.recorder("race of kernels").expect("a recorder");
    let slices = [one.clone()];
    recorder.dispatch(&kernel, &slices, &[64], [1, 1, 1], "race").expect("it fits");
    recorder.copy(&one, &two);
    gpu.submit(&recorder.finish().expect("a recording")).expect("a submission");
    let messages = gpu.validation_messages();
    let heard = messages.iter().any(|message| message.contains("SYNC-HAZARD"));
    assert_eq!(heard, gpu.checks_sync, "{messages:#?}");
}

#[test]
fn misuse_panics_before_it_reaches_the_driver() {
    let (gpu, other) = (open(), open());
    let target = zeros(&gpu, 64, "target");
    let kernel = pipeline(&gpu, &CONSTANT);
    let check = |name: &str, misuse: &dyn Fn(&mut oa_vk::Recorder)| {
        let mut recorder = gpu.recorder("misuse").expect("a recorder");
        let caught = catch_unwind(AssertUnwindSafe(|| misuse(&mut recorder)));
        assert!(caught.is_err(), "{name}");
    };
    let run = |recorder: &mut oa_vk::Recorder, slices: &[oa_vk::Slice], push: &[u32]| {
        let _ran = recorder.dispatch(&kernel, slices, push, [1, 1, 1], "misuse");
    };
    check("no slice", &|r| run(r, &[], &[1]));
    check("too many slices", &|r| run(r, &[target.clone(), target.clone()], &[1]));
    check("too many push constants", &|r| run(r, std::slice::from_ref(&target), &[1, 2, 3]));
    check("an empty slice", &|r| run(r, &[target.sub(0, 0)], &[1]));
    check("a misaligned slice", &|r| run(r, &[target.sub(2, 4)], &[1]));
    check("another device's slice", &|r| run(r, &[zeros(&other, 64, "foreign")], &[1]));
    check("copies of other lengths", &|r| r.copy(&target.sub(0, 4), &target.sub(8, 8)));
    check("copies that overlap", &|r| r.copy(&target.sub(0, 8), &target.sub(4, 8)));
    check("a fill of half a word", &|r| r.fill_zero(&target.sub(0, 2)));
    let recorded = other.recorder("foreign").and_then(|r| r.finish()).expect("a recording");
    let caught = catch_unwind(AssertUnwindSafe(|| gpu.submit(&recorded)));
    assert!(caught.is_err(), "another device's recording");
}
