//! Which pipelines the planner picks on an Adreno phone, as `runtime/ops` chooses there. A change of its choice by device class
//! belongs here too.

use anyhow::{Context, Result};
use vkdelegate::shader::{Access, Template, Variant};

/// Spec constants: id and value.
pub type Spec = Vec<(u32, u32)>;

/// Variants of which only a CPU takes any: template and axis value.
const FOR_CPUS: &[(&str, &str)] = &[
    ("attention_query", "dtype=f32"),
    ("attention_query", "dtype=f16"),
    ("matmul", "tile_m=16"),
    ("matmul_lanes", "tile_m=1"),
    ("linear_codes", "tile_m=16"),
    ("int_mm_codes", "tile_m=16"),
    ("linear_dot", "tile_m=8"),
];

/// A template's name, and settings of its spec constants.
type Family = (&'static str, &'static [&'static [(&'static str, u32)]]);

/// The costliest of the activations that products apply.
const GELU_ERF: u32 = 3;

/// The templates of the committed table, with the spec constants that the planner sets for sizes that are multiples of 4.
/// Without them all are 0 (see the headers): the way for odd sizes.
const FAMILY: &[Family] = &[
    (
        "matmul",
        &[
            &[("a_vec4", 1), ("b_loads", 1), ("has_bias", 1)],
            &[("a_vec4", 1), ("b_loads", 2), ("has_bias", 0)],
            &[("a_vec4", 1), ("b_loads", 1), ("has_bias", 1), ("adds_y", 1)],
            &[("a_vec4", 1), ("b_loads", 1), ("has_bias", 1), ("activation", GELU_ERF)],
        ],
    ),
    (
        "matmul_row",
        &[
            &[("a_vec4", 1), ("b_loads", 1), ("has_bias", 1)],
            &[("a_vec4", 1), ("b_loads", 2), ("has_bias", 0)],
            &[("a_vec4", 1), ("b_loads", 1), ("has_bias", 1), ("adds_y", 1)],
            &[("a_vec4", 1), ("b_loads", 1), ("has_bias", 1), ("activation", GELU_ERF)],
        ],
    ),
    (
        "linear_codes",
        &[
            &[("x_vec4", 1), ("has_bias", 1), ("scales_last", 0)],
            &[("x_vec4", 1), ("has_bias", 1), ("scales_last", 1)],
        ],
    ),
    ("linear_codes_row", &[&[("x_vec4", 1), ("has_bias", 1)]]),
    (
        "linear_dot",
        &[
            &[("x_vec4", 1), ("has_factors", 1), ("has_bias", 1), ("one_group", 0)],
            &[("x_vec4", 1), ("has_factors", 1), ("has_bias", 1), ("one_group", 1)],
        ],
    ),
    ("linear_dot_row", &[&[("has_factors", 1), ("has_bias", 1)]]),
    ("conv", &[&[("kernel_h", 3), ("kernel_w", 3), ("has_bias", 1)]]),
    ("attention_tile", &[&[("width", 16), ("mask_kind", 1)]]),
    ("attention_row", &[&[("width", 16), ("mask_kind", 1)]]),
    ("softmax", &[]),
    ("sort", &[&[("local_x", 512)]]),
    ("normalize", &[&[("has_weight", 1), ("has_bias", 1)]]),
];

/// Templates whose work group the planner never leaves at its default.
const OTHER_GROUPS: &[&str] = &["sort"];

/// Whether the planner takes the template with the defaults of its spec constants, too.
pub fn takes_defaults(template: &str) -> bool {
    !OTHER_GROUPS.contains(&template)
}

/// Whether the committed table lists the template.
pub fn is_listed(template: &str) -> bool {
    FAMILY.iter().any(|(name, _)| *name == template)
}

/// Whether the planner can take the variant on an Adreno whose packed dot products are fast or not: phones reach
/// buffers by descriptors, and take plain products of bytes only where packed ones are slow.
pub fn is_picked(template: &Template, variant: &Variant, has_packed_dot: bool) -> bool {
    let has = |value: &str| variant.axes.split(' ').any(|axis| axis == value);
    variant.access == Access::Ssbo
        && !FOR_CPUS.iter().any(|(name, value)| *name == template.name && has(value))
        && !(has_packed_dot && has("dot=plain"))
}

/// The settings of spec constants that the planner takes for aligned sizes, beyond the defaults.
///
/// # Errors
/// When the template has no spec constant of such a name.
pub fn specs_of(template: &Template) -> Result<Vec<Spec>> {
    let settings = FAMILY.iter().find(|(name, _)| *name == template.name).map_or(&[][..], |family| family.1);
    settings
        .iter()
        .map(|setting| setting.iter().map(|&(name, value)| Ok((id_of(template, name)?, value))).collect())
        .collect()
}

fn id_of(template: &Template, name: &str) -> Result<u32> {
    let found = template.specs.iter().find(|spec| spec.name == name);
    found.map(|spec| spec.id).with_context(|| {
        format!("{} has no spec constant `{name}`: name what the planner sets in picks.rs", template.name)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::{FAMILY, FOR_CPUS, is_picked, specs_of};
    use vkdelegate::shader::{Template, kernels::TEMPLATES};

    fn template(name: &str) -> &'static Template {
        TEMPLATES.iter().find(|template| template.name == name).unwrap()
    }

    fn picked(name: &str, has_packed_dot: bool) -> Vec<&'static str> {
        let template = template(name);
        let variants = template.variants.iter();
        variants.filter(|variant| is_picked(template, variant, has_packed_dot)).map(|v| v.axes).collect()
    }

    #[test]
    fn every_template_of_the_table_has_picked_variants_and_the_named_constants() {
        for (name, settings) in FAMILY {
            assert!(!picked(name, true).is_empty(), "{name}");
            assert_eq!(specs_of(template(name)).unwrap().len(), settings.len(), "{name}");
        }
    }

    #[test]
    fn what_only_a_cpu_takes_exists_and_is_not_picked() {
        for (name, value) in FOR_CPUS {
            let has = |axes: &str| axes.split(' ').any(|axis| axis == *value);
            assert!(template(name).variants.iter().any(|variant| has(variant.axes)), "{name} {value}");
            assert!(!picked(name, true).into_iter().any(has), "{name} {value}");
        }
    }

    #[test]
    fn phones_take_descriptors_and_packed_products_where_they_are_fast() {
        assert!(
            picked("linear_dot", true)
                .iter()
                .all(|axes| axes.contains("access=ssbo") && axes.contains("dot=packed"))
        );
        assert!(picked("linear_dot", false).iter().any(|axes| axes.contains("dot=plain")));
    }
}
