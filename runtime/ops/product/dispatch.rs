//! From a launch that fits the device to the dispatch of one kernel: loads, strides, spec constants.

use super::{ALONG_COLUMNS, ALONG_K, Columns, ELEMENTS, Launch, vectors_along};
use crate::{
    base::{Error, Result},
    ops::{
        Element, Lowering, Tensor,
        elementwise::pad,
        epilogue::known,
        ways::{MAX_LANES, ProductWay, ROW_SPLIT},
    },
    shader::{Chosen, Dispatch, OperandAccess, Region, kernels},
};

/// The dispatch of a launch by the kernel `$kernel` with activation `$activation`, in `$groups` work groups. The kernels
/// share operands and parameters; in braces are the axes and spec constants that only some of them have.
macro_rules! product_dispatch {
    (
        $launch:ident, $cx:ident, $chosen:ident, $kernel:ident, $activation:ident, $groups:expr,
        axes { $($axis:ident: $point:expr),* }, spec { $($constant:ident: $value:expr),* }
    ) => {{
        use kernels::$kernel::{Axes, Operands, Out, Params, Spec, dispatch};
        $launch.check_elements()?;
        let axes = Axes {
            dtype: float_axis!($kernel, $launch.a.element)?,
            out: if $launch.y.element == Element::F16 { Out::F16 } else { Out::F32 },
            $($axis: $point,)*
        };
        let spec = Spec {
            round_mode: $launch.round_mode($cx),
            local_x: $chosen.local[0],
            has_bias: u32::from($launch.bias.is_some()),
            adds_y: u32::from($launch.adds_y),
            activation: known($launch.activation.$activation())?,
            $($constant: $value,)*
        };
        let params = Params {
            m: $launch.rows() as u32,
            n: $launch.columns() as u32,
            k: $launch.depth() as u32,
            batch_1: $launch.y.sizes[1] as u32,
            alpha: $launch.alpha,
            beta: $launch.beta,
            act_a: $launch.activation.a,
            act_b: $launch.activation.b,
            a_strides: pad(&$launch.a.strides, 0)?,
            b_strides: $launch.b_strides()?,
            bias_strides: $launch.bias_strides()?,
            y_strides: pad(&$launch.y.strides[..3], 0)?,
        };
        let [a, b, bias, y] = $launch.regions();
        let dispatch = dispatch(axes, spec, Operands { a, b, bias, y }, params, $groups, $cx.label());
        Ok($launch.with_access(dispatch))
    }};
}

impl Launch {
    /// Whether rows of a can be loaded as vectors along k.
    pub(super) fn a_vec4(&self) -> bool {
        self.depth().is_multiple_of(4) && vectors_along(&self.a, 3)
    }

    /// How b is loaded: see `b_loads` in the kernels.
    pub(super) fn b_loads(&self) -> u32 {
        match &self.b {
            Columns::Panels(_) => ALONG_COLUMNS,
            Columns::Live(b) if self.columns().is_multiple_of(4) && vectors_along(b, 3) => ALONG_COLUMNS,
            Columns::Live(b) if self.depth().is_multiple_of(4) && vectors_along(b, 2) => ALONG_K,
            Columns::Live(_) => ELEMENTS,
        }
    }

    /// Strides of b as the kernels take them: of the batch dims, of k, and from one column (or panel) to the next.
    fn b_strides(&self) -> Result<[u32; 4]> {
        match &self.b {
            Columns::Panels(b) => pad(&[0, 0, 4, b.strides[0]], 0),
            Columns::Live(b) => {
                let step = if self.b_loads() == 1 { 4 } else { b.strides[3] };
                pad(&[b.strides[0], b.strides[1], b.strides[2], step], 0)
            }
        }
    }

    pub(super) fn bias_strides(&self) -> Result<[u32; 4]> {
        self.bias.as_ref().map_or(Ok([0; 4]), |bias| pad(&bias.strides, 0))
    }

    /// Regions of a, b, bias and y. Those that are not read have no bytes, and others are bound in their place.
    pub(super) fn regions(&self) -> [Region; 4] {
        let b = match &self.b {
            Columns::Live(b) | Columns::Panels(b) => b.region(),
        };
        let bias = self.bias.as_ref().map_or(b, Tensor::region);
        let [a, b] = [self.a.region(), b].map(|region| if region.len_bytes == 0 { bias } else { region });
        [a, b, bias, self.y.region()]
    }

    pub(super) fn check_elements(&self) -> Result<()> {
        let b = match &self.b {
            Columns::Live(b) | Columns::Panels(b) => b.element,
        };
        if self.a.element != b || self.bias.as_ref().is_some_and(|bias| bias.element != b) {
            return Err(Error::internal("the operands of a product are stored in different ways"));
        }
        Ok(())
    }

    /// Kernels read y only where they add to it.
    pub(super) fn with_access(&self, mut dispatch: Dispatch) -> Dispatch {
        if let Some(y) = dispatch.operands.last_mut().filter(|_| !self.adds_y) {
            y.access = OperandAccess::Write;
        }
        dispatch
    }

    pub(super) fn round_mode(&self, cx: &Lowering<'_>) -> u32 {
        if self.keeps_f32 { 0 } else { cx.round_mode(self.y.dtype, self.y.element) }
    }

    /// Work groups of the kernels whose invocations take a tile each.
    fn tile_groups(&self, chosen: &Chosen<ProductWay>) -> [u32; 3] {
        let (rows, columns) = (chosen.tile_rows(), chosen.tile_columns());
        [self.rows().div_ceil(rows), self.columns().div_ceil(columns), self.batches()]
            .map(|groups| groups as u32)
    }

    pub(super) fn tile_dispatch(&self, cx: &Lowering<'_>, chosen: &Chosen<ProductWay>) -> Result<Dispatch> {
        use kernels::matmul::TileM;
        product_dispatch!(
            self,
            cx,
            chosen,
            matmul,
            in_matmul,
            self.tile_groups(chosen),
            axes {
                tile_m: match chosen.value.rows() {
                    4 => TileM::TileM4,
                    8 => TileM::TileM8,
                    _ => TileM::TileM16,
                }
            },
            spec { local_y: chosen.local[1], a_vec4: u32::from(self.a_vec4()), b_loads: self.b_loads() }
        )
    }

    /// What reads a and b as texels of 4 elements, which the launch has.
    pub(super) fn texel_dispatch(&self, cx: &Lowering<'_>, chosen: &Chosen<ProductWay>) -> Result<Dispatch> {
        product_dispatch!(
            self,
            cx,
            chosen,
            matmul_texel,
            in_matmul_texel,
            self.tile_groups(chosen),
            axes {},
            spec { local_y: chosen.local[1] }
        )
    }

    pub(super) fn lanes_dispatch(&self, cx: &Lowering<'_>, chosen: &Chosen<ProductWay>) -> Result<Dispatch> {
        use kernels::matmul_lanes::TileM;
        product_dispatch!(
            self,
            cx,
            chosen,
            matmul_lanes,
            in_matmul_lanes,
            self.tile_groups(chosen),
            axes {
                tile_m: match chosen.value.rows() {
                    1 => TileM::TileM1,
                    4 => TileM::TileM4,
                    8 => TileM::TileM8,
                    _ => TileM::TileM16,
                }
            },
            spec {
                lanes: cx.profile().subgroup_size.clamp(4, MAX_LANES),
                a_vec4: u32::from(self.a_vec4()),
                b_loads: self.b_loads()
            }
        )
    }

    pub(super) fn split_dispatch(&self, cx: &Lowering<'_>, chosen: &Chosen<ProductWay>) -> Result<Dispatch> {
        use kernels::matmul_split::TileM;
        product_dispatch!(
            self,
            cx,
            chosen,
            matmul_split,
            in_matmul_split,
            self.tile_groups(chosen),
            axes {
                tile_m: match chosen.value.rows() {
                    2 => TileM::TileM2,
                    4 => TileM::TileM4,
                    _ => TileM::TileM8,
                }
            },
            spec { a_vec4: u32::from(self.a_vec4()), b_loads: self.b_loads() }
        )
    }

    pub(super) fn row_dispatch(&self, cx: &Lowering<'_>, chosen: &Chosen<ProductWay>) -> Result<Dispatch> {
        let [x, y_groups, _] = cx.groups_1d(self.columns().div_ceil(4), chosen.local[0] / ROW_SPLIT)?;
        product_dispatch!(
            self,
            cx,
            chosen,
            matmul_row,
            in_matmul_row,
            [x, y_groups, self.batches() as u32],
            axes {},
            spec { a_vec4: u32::from(self.a_vec4()), b_loads: self.b_loads() }
        )
    }
}
