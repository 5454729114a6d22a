"""`anchordot doctor`: whether this installation works."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doctor:
    """Show versions and devices, test the method for a few seconds, and advise.

    Exit code 1 if a check fails.
    """

    json: bool = False
    """Print one JSON object instead of tables."""

    def run(self) -> int:
        """Run the checks and return the exit code."""
        from anchordot_jax.cli import output
        from anchordot_jax.doctor.advice import advice, findings
        from anchordot_jax.doctor.selftest import run_selftest

        found = findings()
        checks = run_selftest()
        ok = all(check.ok for check in checks)
        advised = advice(found)
        if self.json:
            values = {
                "ok": ok,
                **found._asdict(),
                "checks": [check._asdict() for check in checks],
                "advice": advised,
            }
            output.print_json(values)
            return 0 if ok else 1
        about = dict(found.environment)
        versions = [["Python", about["python"]], *map(list, about["versions"].items())]
        versions += [["platform", about["platform"]], ["cores", str(found.cores)]]
        versions += [["devices", ", ".join(about["devices"])]]
        output.print_table("Installation", ["", "value"], versions)
        rows = [
            [c.name, "ok" if c.ok else "FAILED", c.found, f"{c.seconds:.1f} s"]
            for c in checks
        ]
        output.print_table("Self-test", ["check", "", "measured", "time"], rows)
        for line in advised:
            print(f"advice: {line}")
        print("The self-test passed." if ok else "The self-test FAILED.")
        return 0 if ok else 1
