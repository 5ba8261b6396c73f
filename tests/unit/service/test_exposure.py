import pytest

from service.app import StartError, create_app
from service.gate import is_loopback
from service.settings import Settings


class TestCreateApp:
    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "gpu-head"])
    def test_other_machines_are_served_with_a_token_only(self, host):
        url = "postgresql://nobody@127.0.0.1/none"
        with pytest.raises(StartError, match="TAN_API_TOKEN"):
            create_app(Settings(host=host, database_url=url))
        create_app(Settings(host=host, database_url=url, api_token="t"))

    def test_without_a_database_it_says_what_to_set(self):
        with pytest.raises(StartError, match="TAN_DATABASE_URL"):
            create_app(Settings(database_url=None))

    def test_every_route_documents_its_problems(self):
        app = create_app(Settings(database_url="postgresql://nobody@127.0.0.1/none"))
        for path, operations in app.openapi()["paths"].items():
            for method, operation in operations.items():
                for status, response in operation["responses"].items():
                    if status.startswith(("4", "5")):
                        assert list(response["content"]) == ["application/problem+json"], (
                            method,
                            path,
                            status,
                        )


class TestIsLoopback:
    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.3", "::1", "[::1]"])
    def test_this_machine(self, host):
        assert is_loopback(host)

    @pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "localhost.evil.example", "10.0.0.1"])
    def test_anything_else(self, host):
        assert not is_loopback(host)
