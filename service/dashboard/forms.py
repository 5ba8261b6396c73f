"""Plain forms, as browsers send them: names with values, in their order."""

from urllib.parse import parse_qsl

from fastapi import Request

from service.errors import InvalidInputError

MAX_FIELDS = 10


async def read_form(request: Request, *, max_fields: int = MAX_FIELDS) -> list[tuple[str, str]]:
    """The fields in the body; what is left empty is left out.

    Raises:
        InvalidInputError: there are more of them than the form has.
    """
    body = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qsl(body, max_num_fields=max_fields)
    except ValueError:
        raise InvalidInputError(f"a form here has at most {max_fields} fields") from None
