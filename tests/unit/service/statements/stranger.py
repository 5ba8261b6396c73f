"""What a stranger needs to check a privacy statement: dp-accounting, cryptography and this file.

python -I stranger.py statement.json KEY_ID
"""

import base64
import hashlib
import json
import sys
from decimal import Decimal

import dp_accounting
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from dp_accounting.pld import PLDAccountant

with open(sys.argv[1], encoding="utf-8") as file:
    document = json.load(file)
signature = document.pop("signature")
public = base64.b64decode(signature["public_key"])
assert hashlib.sha256(public).hexdigest()[:16] == sys.argv[2], "another key"


def canonical(value):
    """RFC 8785: floats as ECMAScript writes them, which is as Python does but for small ones."""
    if isinstance(value, dict):
        inside = (f"{json.dumps(k)}:{canonical(v)}" for k, v in sorted(value.items()))
        return "{" + ",".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ",".join(canonical(one) for one in value) + "]"
    if isinstance(value, float):
        if value.is_integer():
            return str(int(value))
        small = 1e-6 <= abs(value) < 1e-4
        return f"{Decimal(repr(value)):f}" if small else repr(value).replace("e-0", "e-")
    return json.dumps(value, ensure_ascii=False)


Ed25519PublicKey.from_public_bytes(public).verify(
    base64.b64decode(signature["value"]), canonical(document).encode()
)
accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
for event in document["events"]:
    noise = dp_accounting.GaussianDpEvent(float.fromhex(event["noise_multiplier"]))
    rate = float.fromhex(event["sampling_rate"])
    accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, noise), event["steps"])
epsilon = accountant.get_epsilon(document["privacy"]["delta"])
assert abs(document["privacy"]["epsilon"] / epsilon - 1) < 1e-3, epsilon
print(f"epsilon {epsilon:.6f}")
