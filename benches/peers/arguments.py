"""The command line of the peers' scripts."""
import argparse


def linear_arguments(description):
    """The arguments, and the shape as (m, k, n)."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--shape", required=True, metavar="MxKxN")
    parser.add_argument("--dtype", default="f32", choices=["f32", "f16", "int8", "int4"])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--runs", type=int, default=10)
    args = parser.parse_args()
    return args, tuple(map(int, args.shape.split("x")))
