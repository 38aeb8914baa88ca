"""The requests of Kafka that the server speaks, by tools/kafka_tables.py. `schema` says how to read it."""

REQUESTS = """
AddPartitionsToTxn 24 0-3 flexible=3
 v3and_below_transactional_id string
 v3and_below_producer_id int64
 v3and_below_producer_epoch int16
 v3and_below_topics []struct
  name string
  partitions []int32
AddOffsetsToTxn 25 0-3 flexible=3
 transactional_id string
 producer_id int64
 producer_epoch int16
 group_id string
EndTxn 26 0-3 flexible=3
 transactional_id string
 producer_id int64
 producer_epoch int16
 committed bool
TxnOffsetCommit 28 0-3 flexible=3
 transactional_id string
 group_id string
 producer_id int64
 producer_epoch int16
 generation_id int32 3-3 default=-1
 member_id string 3-3
 group_instance_id string 3-3 nullable=3 default=null
 topics []struct
  name string
  partitions []struct
   partition_index int32
   committed_offset int64
   committed_leader_epoch int32 2-3 default=-1
   committed_metadata string nullable=0
Produce 0 3-12 flexible=9
 transactional_id string nullable=3 default=null
 acks int16
 timeout_ms int32
 topic_data []struct
  name string
  partition_data []struct
   index int32
   records records nullable=3
Fetch 1 4-12 flexible=12
 cluster_id string 12-12 nullable=12 tag=0 default=null
 replica_id int32 default=-1
 max_wait_ms int32
 min_bytes int32
 max_bytes int32 default=2147483647
 isolation_level int8
 session_id int32 7-12
 session_epoch int32 7-12 default=-1
 topics []struct
  topic string
  partitions []struct
   partition int32
   current_leader_epoch int32 9-12 default=-1
   fetch_offset int64
   last_fetched_epoch int32 12-12 default=-1
   log_start_offset int64 5-12 default=-1
   partition_max_bytes int32
 forgotten_topics_data []struct 7-12
  topic string 7-12
  partitions []int32 7-12
 rack_id string 11-12
ListOffsets 2 1-7 flexible=6
 replica_id int32
 isolation_level int8 2-7
 topics []struct
  name string
  partitions []struct
   partition_index int32
   current_leader_epoch int32 4-7 default=-1
   timestamp int64
Metadata 3 0-12 flexible=9
 topics []struct nullable=1
  topic_id uuid 10-12
  name string nullable=10
 allow_auto_topic_creation bool 4-12 default=true
 include_cluster_authorized_operations bool 8-10
 include_topic_authorized_operations bool 8-12
OffsetCommit 8 2-9 flexible=8
 group_id string
 generation_id_or_member_epoch int32 default=-1
 member_id string
 group_instance_id string 7-9 nullable=7 default=null
 retention_time_ms int64 2-4 default=-1
 topics []struct
  name string
  partitions []struct
   partition_index int32
   committed_offset int64
   committed_leader_epoch int32 6-9 default=-1
   committed_metadata string nullable=2
OffsetFetch 9 1-9 flexible=6
 group_id string 1-7
 topics []struct 1-7 nullable=2
  name string 1-7
  partition_indexes []int32 1-7
 groups []struct 8-9
  group_id string 8-9
  member_id string 9-9 nullable=9 default=null
  member_epoch int32 9-9 default=-1
  topics []struct 8-9 nullable=8
   name string 8-9
   partition_indexes []int32 8-9
 require_stable bool 7-9
FindCoordinator 10 0-4 flexible=3
 key string 0-3
 key_type int8 1-4
 coordinator_keys []string 4-4
JoinGroup 11 0-9 flexible=6
 group_id string
 session_timeout_ms int32
 rebalance_timeout_ms int32 1-9 default=-1
 member_id string
 group_instance_id string 5-9 nullable=5 default=null
 protocol_type string
 protocols []struct
  name string
  metadata bytes
 reason string 8-9 nullable=8 default=null
Heartbeat 12 0-4 flexible=4
 group_id string
 generation_id int32
 member_id string
 group_instance_id string 3-4 nullable=3 default=null
LeaveGroup 13 0-5 flexible=4
 group_id string
 member_id string 0-2
 members []struct 3-5
  member_id string 3-5
  group_instance_id string 3-5 nullable=3 default=null
  reason string 5-5 nullable=5 default=null
SyncGroup 14 0-5 flexible=4
 group_id string
 generation_id int32
 member_id string
 group_instance_id string 3-5 nullable=3 default=null
 protocol_type string 5-5 nullable=5 default=null
 protocol_name string 5-5 nullable=5 default=null
 assignments []struct
  member_id string
  assignment bytes
DescribeGroups 15 0-5 flexible=5
 groups []string
 include_authorized_operations bool 3-5
ListGroups 16 0-4 flexible=3
 states_filter []string 4-4
SaslHandshake 17 0-1 flexible=2
 mechanism string
ApiVersions 18 0-4 flexible=3
 client_software_name string 3-4
 client_software_version string 3-4
CreateTopics 19 2-7 flexible=5
 topics []struct
  name string
  num_partitions int32
  replication_factor int16
  assignments []struct
   partition_index int32
   broker_ids []int32
  configs []struct
   name string
   value string nullable=2
 timeout_ms int32 default=60000
 validate_only bool
DeleteTopics 20 1-6 flexible=4
 topics []struct 6-6
  name string 6-6 nullable=6 default=null
  topic_id uuid 6-6
 topic_names []string 1-5
 timeout_ms int32
DeleteRecords 21 0-2 flexible=2
 topics []struct
  name string
  partitions []struct
   partition_index int32
   offset int64
 timeout_ms int32
InitProducerId 22 0-4 flexible=2
 transactional_id string nullable=0
 transaction_timeout_ms int32
 producer_id int64 3-4 default=-1
 producer_epoch int16 3-4 default=-1
OffsetForLeaderEpoch 23 2-4 flexible=4
 replica_id int32 3-4 default=-2
 topics []struct
  topic string
  partitions []struct
   partition int32
   current_leader_epoch int32 default=-1
   leader_epoch int32
DescribeConfigs 32 1-4 flexible=4
 resources []struct
  resource_type int8
  resource_name string
  configuration_keys []string nullable=1
 include_synonyms bool
 include_documentation bool 3-4
AlterConfigs 33 0-2 flexible=2
 resources []struct
  resource_type int8
  resource_name string
  configs []struct
   name string
   value string nullable=0
 validate_only bool
SaslAuthenticate 36 0-2 flexible=2
 auth_bytes bytes
CreatePartitions 37 0-3 flexible=2
 topics []struct
  name string
  count int32
  assignments []struct nullable=0
   broker_ids []int32
 timeout_ms int32
 validate_only bool
DeleteGroups 42 0-2 flexible=2
 groups_names []string
IncrementalAlterConfigs 44 0-1 flexible=1
 resources []struct
  resource_type int8
  resource_name string
  configs []struct
   name string
   config_operation int8
   value string nullable=0
 validate_only bool
DescribeCluster 60 0-1 flexible=0
 include_cluster_authorized_operations bool
 endpoint_type int8 1-1 default=1
ConsumerGroupHeartbeat 68 0-1 flexible=0
 group_id string
 member_id string
 member_epoch int32
 instance_id string nullable=0 default=null
 rack_id string nullable=0 default=null
 rebalance_timeout_ms int32 default=-1
 subscribed_topic_names []string nullable=0 default=null
 subscribed_topic_regex string 1-1 nullable=1 default=null
 server_assignor string nullable=0 default=null
 topic_partitions []struct nullable=0 default=null
  topic_id uuid
  partitions []int32
ConsumerGroupDescribe 69 0-1 flexible=0
 group_ids []string
 include_authorized_operations bool
ShareGroupHeartbeat 76 1-1 flexible=0
 group_id string
 member_id string
 member_epoch int32
 rack_id string nullable=1 default=null
 subscribed_topic_names []string nullable=1 default=null
ShareGroupDescribe 77 1-1 flexible=0
 group_ids []string
 include_authorized_operations bool
ShareFetch 78 1-1 flexible=0
 group_id string nullable=1 default=null
 member_id string nullable=1
 share_session_epoch int32
 max_wait_ms int32
 min_bytes int32
 max_bytes int32 default=2147483647
 max_records int32
 batch_size int32
 topics []struct
  topic_id uuid
  partitions []struct
   partition_index int32
   acknowledgement_batches []struct
    first_offset int64
    last_offset int64
    acknowledge_types []int8
 forgotten_topics_data []struct
  topic_id uuid
  partitions []int32
ShareAcknowledge 79 1-1 flexible=0
 group_id string nullable=1 default=null
 member_id string nullable=1
 share_session_epoch int32
 topics []struct
  topic_id uuid
  partitions []struct
   partition_index int32
   acknowledgement_batches []struct
    first_offset int64
    last_offset int64
    acknowledge_types []int8
"""
